"""The interleaved samples of a tar: each member `.json` is a sample, and its images are members of the same tar."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from touchfs.core import progress
from touchfs.core.errors import FormatError
from touchfs.indexing.interleaved.images import ImageItems
from touchfs.interleaved.forms.document import (
    DOCUMENT,
    document_parts,
    metadata_detail,
    parse_stored_document,
    text_detail,
)
from touchfs.interleaved.layout.document import Document
from touchfs.interleaved.layout.image_members import place_images
from touchfs.limits import too_long
from touchfs.registry.contents import FieldContents
from touchfs.registry.open import KnownShard
from touchfs.shard.options import Options
from touchfs.shard.sample import Field, StoredSample
from touchfs.view.interleaved import InterleavedSample, ViewItem

_JSON = ".json"
# A document of MINT-1T has up to some hundred. Each takes 200 bytes of memory here, and 3 of its JSON are enough.
ITEMS_MAX = 100_000


class TarSamples:
    """The interleaved samples of a tar, in the order of their JSON members. Raises as opening it."""

    problems: Sequence[str] = ()

    def __init__(self, shard: KnownShard, options: Options) -> None:
        self._limits = options.limits
        self._shard = shard.open(options)
        self._contents = FieldContents(shard, options.limits)
        self._images = ImageItems(self._contents)
        self._all = {name: sample.ordinal for sample in self._shard for name in _members(sample)}
        self._others = dict(self._shard.others)

    def close(self) -> None:
        """Close the files."""
        self._contents.close()
        self._shard.close()

    def _documents(self) -> Iterator[tuple[str, Field, Mapping[str, Field]]]:
        """The name and the field of each JSON member, and all members of the same sample of `shards/`."""
        for sample in self._shard:
            own = _members(sample)
            for name, field in own.items():
                if name.lower().endswith(_JSON):
                    yield name, field, own

    def _read(self, field: Field) -> bytes:
        content = self._contents.content(field)
        if content.size > self._limits.json:
            raise FormatError(too_long("its JSON", self._limits.json))
        return bytes(content.read(0, content.size))

    def __iter__(self) -> Iterator[InterleavedSample]:
        for name, field, own in progress.each(self._documents()):
            yield self._sample(name, field, own)

    def _sample(self, name: str, field: Field, own: Mapping[str, Field]) -> InterleavedSample:
        stem = name[: -len(_JSON)]
        stored = replace(field, name="sample", extension="sample.json")
        try:
            document = parse_stored_document(self._read(field), self._limits)
            if len(document.texts) + len(document.images) > ITEMS_MAX:
                raise FormatError(f"it has over {ITEMS_MAX:,} items")
            parts = document_parts(document)
        except FormatError as error:
            return InterleavedSample(stem, (), stored, problem=error.message)
        sample_id = document.sample_id or stem
        others = replace(stored, name="metadata", form=DOCUMENT, extension="metadata.json")
        text = replace(others, name="text", extension="txt")
        texts = [
            ViewItem(position, replace(text, detail=text_detail(number, parts[number])))
            for number, (position, _) in enumerate(document.texts, 1)
        ]
        metadata = replace(others, detail=metadata_detail(sample_id, parts[0]))
        images = self._placed(document, (stem, sample_id), own)
        return InterleavedSample(sample_id, [*texts, *images], stored, metadata)

    def _placed(self, document: Document, keys: tuple[str, ...], own: Mapping[str, Field]) -> list[ViewItem]:
        members = _AnyMember(own, self._all, self._others)
        placed = place_images(document, keys, members)
        fields = {image.member: self._field(image.member, own) for image in placed if image.member is not None}
        return self._images.items(placed, fields, [token for _, token in document.images])

    def _field(self, member: str, own: Mapping[str, Field]) -> Field:
        """The field of a member: that of the same sample if two have its name, else the last one."""
        if member in own:
            return own[member]
        if member in self._others:
            return self._others[member]
        return _members(self._shard.sample(self._all[member]))[member]


def _members(sample: StoredSample) -> dict[str, Field]:
    return {f"{sample.key}.{field.written}": field for field in sample.fields.values()}


class _AnyMember(Container[str]):
    """The names of all members of a tar."""

    def __init__(self, *parts: Container[str]) -> None:
        self._parts = parts

    def __contains__(self, name: object) -> bool:
        return any(name in part for part in self._parts)
