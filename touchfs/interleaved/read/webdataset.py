"""Read WebDataset tars of interleaved samples, as MINT-1T's: each JSON member is a sample.

The headers of a tar are read first, then its JSON members where they are. Images are read only with
`materialize_on_read`; otherwise rows say where they are. Rows of a compressed tar name the tar and the member, but no
range: nobody can read a range of it.

The types of columns are those of all values in the partition. So where its rows become several tables, the JSON members
are read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

import pyarrow as pa

from touchfs.containers.tar.layout import TAR_SUFFIX
from touchfs.containers.tar.layout.members import Member
from touchfs.core.errors import ArgumentValueError, FormatError
from touchfs.interleaved.layout.document import Document, SampleFields, parse_document
from touchfs.interleaved.layout.media_types import IMAGE_EXTENSIONS
from touchfs.interleaved.read.column_types import ColumnTypes
from touchfs.interleaved.read.cursor import BatchCursor, SamplePlace
from touchfs.interleaved.read.divided import SamplePiece
from touchfs.interleaved.read.files import ItemPartition
from touchfs.interleaved.read.images_on_read import read_images
from touchfs.interleaved.read.item_tar import ItemTar
from touchfs.interleaved.read.reader import PartitionReader
from touchfs.interleaved.read.sample_rows import ItemRow, build_table, check_text, sample_rows
from touchfs.source.decompressed import TAR_SUFFIXES

WEBDATASET_EXTENSIONS = (TAR_SUFFIX, *TAR_SUFFIXES)
JSON_EXTENSIONS = (".json",)
# The field that our writer and NeMo Curator's give the id in: the name of a member has it quoted.
_ID_FIELD = "sample_id"
# Rows, and bytes of JSON, that become a table together where a partition need not be one.
_ROWS, _SIZE = 4096, 4 << 20


class _TarSample(NamedTuple):
    """A sample, the tar that it is in, the place after it, and the size of its JSON."""

    tar: ItemTar
    place: SamplePlace
    rows: list[ItemRow]
    size: int


@dataclass(frozen=True, eq=False)
class InterleavedWebdatasetReader(PartitionReader):
    """A reader of tars of interleaved samples.

    The parameters of `PartitionReader`, of which `max_batch_bytes`, `fields`, `schema`, `schema_overrides`,
    `read_kwargs`, `limits`, `file_paths`, `files_per_partition` and `blocksize` have no other meaning here, and:

        file_extensions      of the tars in a directory
        materialize_on_read  read the bytes of images, too
        json_extensions      of the members that are the JSON of a sample
        image_extensions     of the image beside the JSON, which images without a member of their own mean
        sample_id_field      the field with the id; by default `sample_id`, else the name of the JSON member is the id
        texts_field          the list of texts
        images_field         the list of names of members
        image_member_field   the field with the name of the member that images without one of their own mean
        per_image_fields     lists with a value for each image that is not null
        per_text_fields      lists with a value for each text that is not null

    All other fields of the JSON become columns, or those that `fields` names, and a warning says which are left out.
    """

    file_extensions: Sequence[str] = field(default=WEBDATASET_EXTENSIONS, kw_only=True)
    materialize_on_read: bool = field(default=False, kw_only=True)
    json_extensions: Sequence[str] = field(default=JSON_EXTENSIONS, kw_only=True)
    image_extensions: Sequence[str] = field(default=IMAGE_EXTENSIONS, kw_only=True)
    sample_id_field: str | None = field(default=None, kw_only=True)
    texts_field: str = field(default="texts", kw_only=True)
    images_field: str = field(default="images", kw_only=True)
    image_member_field: str | None = field(default=None, kw_only=True)
    per_image_fields: tuple[str, ...] = field(default=(), kw_only=True)
    per_text_fields: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if reserved := sorted(self._sample_fields.reserved.intersection(self.fields or ())):
            raise ArgumentValueError(f"fields contains reserved keys: {reserved}")

    @property
    def _sample_fields(self) -> SampleFields:
        return SampleFields(
            self.texts_field,
            self.images_field,
            self.image_member_field,
            self.sample_id_field or _ID_FIELD,
            tuple(self.per_image_fields),
            tuple(self.per_text_fields),
        )

    def columns(self, partition: ItemPartition) -> list[str]:
        types = ColumnTypes(self.fields or ())
        has_rows = self._note_all(partition, types)
        return self._without_rows([name for name, _ in types.schema()]).column_names if has_rows else []

    def itemless(self, partition: ItemPartition) -> list[str]:
        """See `ItemReader.itemless`. Reads the JSON of a tar up to the first text or image."""
        return [path for path in partition.files if self._is_itemless(path)]

    def _is_itemless(self, path: str) -> bool:
        types = ColumnTypes(self.fields or ())
        with closing(ItemTar(path, self.json_extensions, self.options.of(path))) as tar:
            # The first row is that of the metadata.
            return len(tar.members) > 0 and not any(len(self._rows(tar, each, types)) > 1 for each in tar.documents)

    def _samples(self, partition: ItemPartition, start: BatchCursor) -> Iterator[SamplePiece]:
        types = ColumnTypes(self.fields or ())
        if self._is_one_table:
            rows_max = size_max = inf
        else:
            rows_max, size_max = (1, 1) if self.materialize_on_read else (_ROWS, _SIZE)
            self._note_all(partition, types)
        samples: list[_TarSample] = []
        rows = size = 0
        for sample in self._read(partition, start, types):
            samples.append(sample)
            rows, size = rows + len(sample.rows), size + sample.size
            if rows >= rows_max or size >= size_max:
                yield self._table(samples, types)
                samples, rows, size = [], 0, 0
        if samples:
            yield self._table(samples, types)

    def _note_all(self, partition: ItemPartition, types: ColumnTypes) -> bool:
        """Take note of the types of all samples of a partition. Returns True if there are some."""
        return sum(1 for _ in self._read(partition, BatchCursor(), types)) > 0

    @property
    def _is_one_table(self) -> bool:
        return self.max_batch_bytes is None and not self.materialize_on_read

    def _read(self, partition: ItemPartition, start: BatchCursor, types: ColumnTypes) -> Iterator[_TarSample]:
        """Yield the samples from a place on, and take note of their types. Their tar is open until the next one."""
        for file in range(start.file, len(partition.files)):
            first = start.number if file == start.file else 0
            path = partition.files[file]
            with closing(ItemTar(path, self.json_extensions, self.options.of(path))) as tar:
                if first > len(tar.documents):
                    raise FormatError(f"the cursor is at sample {first} of {len(tar.documents)}", path=tar.path)
                for number, member in enumerate(tar.documents[first:], first):
                    place = SamplePlace(file, number + 1, file)
                    yield _TarSample(tar, place, self._rows(tar, member, types), member.size)

    def _rows(self, tar: ItemTar, member: Member, types: ColumnTypes) -> list[ItemRow]:
        try:
            data = tar.read(member, self.limits.json)
            document = parse_document(data, self._sample_fields, self.limits.json)
            passthrough = self._projected(document)
            rows = sample_rows(tar, member, document, passthrough, tuple(self.image_extensions))
            check_text(rows)
            self._note_types(document, passthrough, rows, types)
        except FormatError as error:
            error.message = f"member {member.name!r}: {error.message}"
            error.offset = member.offset
            raise error.at(tar.path) from error.__cause__
        return rows

    def _note_types(
        self, document: Document, passthrough: Mapping[str, Any], rows: list[ItemRow], types: ColumnTypes
    ) -> None:
        types.add(passthrough)
        for names in (self.per_image_fields, self.per_text_fields):
            types.add({name: None for name in names if name in document.per_image or name in document.per_text})
        for row in rows[1:]:
            types.add(row.passthrough)

    def _projected(self, document: Document) -> dict[str, Any]:
        """The fields of a sample that become columns."""
        self._check_lists(self.per_image_fields, document.per_image, len(document.images))
        self._check_lists(self.per_text_fields, document.per_text, len(document.texts))
        if self.fields is None:
            return document.passthrough
        left_out = [name for name in document.passthrough if name not in self.fields]
        self._say_once("fields= leaves out columns that the files have", left_out)
        missing = [name for name in self.fields if name not in document.passthrough]
        self._say_once("fields= names columns that the JSON of a sample lacks, which become null", missing)
        return {name: document.passthrough.get(name) for name in self.fields}

    def _check_lists(self, names: Sequence[str], found: Mapping[str, list[Any]], count: int) -> None:
        missing = [name for name in names if name not in found]
        self._say_once("no values for each item in the JSON of a sample", missing)
        uneven = [name for name in names if name in found and len(found[name]) != count]
        self._say_once("not as many values as items in the JSON of a sample", uneven)

    def _table(self, samples: list[_TarSample], types: ColumnTypes) -> SamplePiece:
        table = build_table([row for sample in samples for row in sample.rows], types.schema())
        ends = list(accumulate(len(sample.rows) for sample in samples))
        places = [sample.place for sample in samples]
        if not self.materialize_on_read:
            return SamplePiece(table, ends, places)
        (sample,) = samples
        options = self.options.of(sample.tar.path)
        table, reencoded = read_images(sample.tar, sample.rows, table, self.limits.decoded, options)
        return SamplePiece(table, ends, places, reencoded)

    def _empty(self, partition: ItemPartition) -> pa.Table:
        return self._without_rows([*(self.fields or ()), *self.per_image_fields, *self.per_text_fields])
