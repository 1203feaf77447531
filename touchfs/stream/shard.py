"""A stream of a shard of any kind, opened as for indexing. A cursor is an ordinal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import cast

from touchfs.dataset.sample import MadeFile, MadeSample, Sample, no_path
from touchfs.errors import FormatError
from touchfs.extent import Content, Extent, Memory
from touchfs.names import shown_extension
from touchfs.sample import Field, Samples
from touchfs.shard.open import fingerprint, open_shard, open_source
from touchfs.shard.options import DEFAULT, Options
from touchfs.source.concat import StoredFile
from touchfs.source.local import FileIdentity
from touchfs.stream.base import VIEW, Cursor, StreamItem, cursor_numbers
from touchfs.view import raw
from touchfs.view.file import File
from touchfs.view.form import presenter


class ShardStream:
    """The samples of one shard. `owner` is an object that must live as long as a sample may be read."""

    def __init__(self, path: str, name: str, options: Options = DEFAULT, owner: object = None) -> None:
        self.path = path
        self.name = name
        self._options = options
        self.window = options.limits.window
        self._owner = owner

    def sizes(self) -> list[tuple[str, int | None]]:
        return sorted((name, identity.size) for name, identity in fingerprint(self.path).items())

    def samples(self, cursor: Cursor) -> Iterator[StreamItem]:
        (start,) = cursor_numbers(cursor, 1)
        with closing(open_shard(self.path, self._options)) as shard:
            samples = cast(Samples, shard)
            if start > len(samples):
                raise FormatError(f"has {len(samples)} samples, and {start} were taken of it", path=self.path)
            reader = _SampleReader(self, samples, shard.files)
            for ordinal in range(start, len(samples)):
                yield [ordinal + 1], partial(reader.sample, ordinal)


class _SampleReader:
    """Makes the samples of an open shard. Each source is opened once, when a sample's content needs it."""

    def __init__(self, stream: ShardStream, samples: Samples, files: Mapping[str, FileIdentity]) -> None:
        self._stream = stream
        self._samples = samples
        self._files = files
        self._sources: dict[str, StoredFile] = {}

    def sample(self, ordinal: int) -> Sample:
        sample = self._samples.sample(ordinal)
        files = {}
        for file in raw.files(sample):
            files[shown_extension(file.extension)] = MadeFile(file.field.name, no_path, partial(self._content, file))
        return MadeSample(VIEW, self._stream.name, ordinal, 0, sample.key, files)

    def _content(self, file: File) -> Content:
        return Memory(file.detail) if file.form == "inline" else self._present(file.field)

    def _present(self, field: Field) -> Content:
        source = self._sources.get(field.source)
        if source is None:
            source = self._sources[field.source] = open_source(self._stream.path, field.source, self._files)
        source.open()
        return presenter(field.form, self._stream.window)(Extent(source, field.offset, field.size), field.detail)
