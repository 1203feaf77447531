"""The shards that a conversion reads: their samples, in order, with their files by extension.

Consecutive tasks of a process often read the same shard, and opening one may mean reading every header of a tar. So
each thread keeps the shard open that it read last, until `release`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

from touchfs.bulk.chosen import Choice, ChosenOfShard, parts_of
from touchfs.bulk.convert.sample import same_names
from touchfs.bulk.convert.segments import with_segments
from touchfs.catalog.catalog import Catalog
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, TouchfsError
from touchfs.core.extent import Buffer, Content, Memory
from touchfs.core.progress import stage
from touchfs.form.compressed_content import plain_extension, read_plain
from touchfs.form.plain import INLINE
from touchfs.indexing.recording_lengths import measure, measure_field, recordings_of
from touchfs.limits import too_large
from touchfs.registry.contents import FieldContents
from touchfs.registry.found import FoundShard
from touchfs.registry.open import known_shard, open_shard, shard_at
from touchfs.registry.segments import SegmentFinder
from touchfs.shard.options import Options
from touchfs.shard.sample import Field, SampleSegments, ShardReader, StoredRecording, StoredSample, recording_in
from touchfs.source.fingerprint import Fingerprint
from touchfs.view import raw
from touchfs.view.file import ViewFile

# The share of the work on a shard that opens it.
_OPENING = 0.1
# From the extensions of the files of a sample to the new ones of those that get another one.
NewNames = Callable[[Collection[str]], Mapping[str, str]]


class InputShard(NamedTuple):
    """A shard to convert, and the fingerprints of its files when the conversion began.

    `partition` has the values of its directories (`touchfs.tables.values.partition`). By default, all samples are
    `chosen`. `overlaid` is the path of its catalog with the files of overlays, "" if it has none.
    """

    path: str
    files: Mapping[str, Fingerprint]
    partition: str = ""
    chosen: ChosenOfShard | None = None
    overlaid: str = ""

    @property
    def size(self) -> int:
        return sum(fingerprint.size for fingerprint in self.files.values())


class _Kept(threading.local):
    of: tuple[InputShard, Options] | None = None
    shard: ShardReader | None = None


_kept = _Kept()


def files_of(path: str) -> Mapping[str, Fingerprint]:
    """Fingerprints of the files of a shard; empty if there is a problem, which is raised when the shard is opened."""
    try:
        return shard_at(path).with_lists().files
    except TouchfsError:
        return {}


def open_kept(read: InputShard, options: Options) -> ShardReader:
    """Open a shard, or return it if this thread read it last.

    Raises ChangedError if it is not the one with which the conversion began, and as `open_shard`.
    """
    if files_of(read.path) != read.files:
        raise ChangedError(
            "has changed since its conversion began: remove the output, and convert again", path=read.path
        )
    if _kept.shard is None or _kept.of != (read, options):
        release()
        with stage(_OPENING):
            _kept.shard = open_shard(read.path, replace(options, partition=read.partition))
        _kept.of = read, options
    return _kept.shard


def inputs_of(found: Sequence[FoundShard], choice: Choice | None) -> list[InputShard]:
    """The shards that were found; with a choice, those of which something is chosen."""
    shards = [InputShard(each.path, files_of(each.path), each.partition) for each in found]
    if choice is None:
        return shards
    shards = [shard._replace(overlaid=path) for shard, path in zip(shards, choice.overlaid, strict=True)]
    if choice.shards is None:
        return shards
    pairs = zip(shards, choice.shards, strict=True)
    return [shard._replace(chosen=chosen) for shard, chosen in pairs if chosen.numbers]


def count(read: InputShard, options: Options) -> int:
    """The number of its samples that are converted. Raises as `open_kept`."""
    return len(open_kept(read, options)) if read.chosen is None else len(read.chosen.numbers)


def release() -> None:
    """Close the shard that this thread keeps open."""
    shard, _kept.shard, _kept.of = _kept.shard, None, None
    if shard is not None:
        shard.close()


def samples(
    read: InputShard, options: Options, leave_out: Collection[str], first: int, new_names: NewNames = same_names
) -> Generator[tuple[StoredSample, Files] | FormatError | NotFoundError, None, None]:
    """The samples of a shard, of those that are chosen from the `first` on, then its problems as errors. `new_names`
    says which files get another extension.
    """
    try:
        if read.chosen is not None and read.chosen.parts is not None:
            for part, contents in parts_of(read.chosen, first):
                yield part, _PartFiles(contents, read, leave_out, options, new_names)
            return
        shard = open_kept(read, options)
        numbers = range(len(shard)) if read.chosen is None else read.chosen.numbers
        with closing(Files(read, leave_out, options, new_names)) as files:
            for ordinal in numbers[first:]:
                yield shard.sample(ordinal), files
            for problem in shard.problems:
                yield FormatError(problem)
    except (FormatError, NotFoundError) as error:
        yield error


class AddedByOverlays:
    """The files that overlays add to the samples of a shard, which are in its `catalog`."""

    def __init__(self, catalog: Catalog) -> None:
        self._table = catalog.tables["shards"]
        self._kinds = catalog.of_overlays

    def files(self, ordinal: int) -> Iterator[ViewFile]:
        """The overlays' files of a sample. Raises FormatError for a damaged catalog."""
        for row in self._table.files(ordinal):
            if self._table.kind[row] in self._kinds:
                extension, data = self._table.extension(row), self._table.inline(row)
                yield ViewFile(extension, Field(extension, "", 0, len(data), INLINE, extension, detail=data))


class Files:
    """The files of a shard's samples, without those of the extensions `leave_out`."""

    def __init__(self, read: InputShard, leave_out: Collection[str], options: Options, new_names: NewNames) -> None:
        self._contents = FieldContents(known_shard(read.path, read.files), options.limits)
        self._segments = SegmentFinder(self._contents, options)
        self._added = AddedByOverlays(Catalog(read.overlaid, read.path)) if read.overlaid else None
        self._leave_out = leave_out
        self._new_names = new_names
        self._limit = options.limits.decoded
        self._text_limit = options.limits.json

    def close(self) -> None:
        self._contents.close()

    @property
    def has_lists(self) -> bool:
        """True if lists beside the shard may have segments, which a copy of its samples does not have."""
        return self._segments.has_lists

    def of(self, sample: StoredSample) -> list[ViewFile]:
        """The files of a sample, not read yet."""
        found = [file for file in self._all(sample) if file.label not in self._leave_out]
        names = self._new_names([file.label for file in found])
        return [file._replace(extension=names.get(file.label, file.extension)) for file in found]

    def _all(self, sample: StoredSample) -> Iterable[ViewFile]:
        return raw.files(sample) if self._added is None else [*raw.files(sample), *self._added.files(sample.ordinal)]

    def _content(self, field: Field) -> Content:
        return self._contents.content(field) if field.form is not INLINE else Memory(field.detail)

    def read(self, file: ViewFile) -> Buffer:
        """The bytes of a file. Raises FormatError, SourceError or ChangedError."""
        if file.size - file.field.size > self._limit:  # a compressed matrix, or a file with holes
            raise FormatError(too_large(self._limit))
        content = self._content(file.field)
        stored = file.field.extension or ""
        if file.extension != stored and file.extension == plain_extension(stored):
            return read_plain(stored, content, self._text_limit)
        return content.read(0, content.size)

    def with_segments(self, sample: StoredSample, files: Mapping[str, Buffer]) -> Mapping[str, Buffer]:
        """The files of a sample, with the segments that its other files have in its JSON.

        Raises FormatError if a file with segments is damaged, and as `read`.
        """
        found, problems = self._segments.find(sample)
        problems += self._segments.remarks
        if problems:
            raise FormatError("; ".join(problems))
        return files if found is None else self._with(sample, files, found)

    def with_listed_segments(self, sample: StoredSample, files: Mapping[str, Buffer]) -> Mapping[str, Buffer]:
        """Like `with_segments`, but with those of the list that names the sample: no file of the sample has them.

        Raises as `with_segments`.
        """
        found, _ = self._segments.find(sample)
        return files if found is None or found is not sample.listed else self._with(sample, files, found)

    def _with(self, sample: StoredSample, files: Mapping[str, Buffer], found: SampleSegments) -> Mapping[str, Buffer]:
        extension = next((file.label for file in self.of(sample) if file.field == found.field), None)
        return with_segments(sample.key, files, extension, found, lambda: self._recording(sample), sample.listed)

    def _recording(self, sample: StoredSample) -> StoredRecording | None:
        """The recording of a sample, which is read if its length must be known for that."""
        recording = recording_in(measure(sample, self._contents)[0])
        if recording is not None:
            return recording if isinstance(recording, StoredRecording) else None
        for field in recordings_of(sample.fields.values()):  # of a row of a table
            if (audio := measure_field(field, self._contents).audio) is not None:
                return StoredRecording(field, audio.rate, audio.channels, audio.frames, audio.sample_format)
        return None


class _PartFiles(Files):
    """The files of one part of a sample, as `segments/` and `merged/` show them."""

    def __init__(self, contents: Mapping[ViewFile, Content], *settings: Any) -> None:
        super().__init__(*settings)
        self._shown = contents

    @property
    def has_lists(self) -> bool:
        """False: its own files say all."""
        return False

    def _all(self, sample: StoredSample) -> Iterable[ViewFile]:
        return self._shown

    def _content(self, field: Field) -> Content:
        return next(content for file, content in self._shown.items() if file.field == field)

    def with_segments(self, sample: StoredSample, files: Mapping[str, Buffer]) -> Mapping[str, Buffer]:
        return files
