"""Samples and files that are rows of a catalog: nothing of them is read before it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fractions import Fraction

from touchfs.catalog.table import Table
from touchfs.core.errors import DecodeLimitError, FormatError
from touchfs.core.extent import Content
from touchfs.core.names import REPORT
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.recordings.shard_recordings import read_recording, recording_row
from touchfs.dataset.sample import Sample
from touchfs.dataset.sample_file import SampleFile
from touchfs.dataset.shard import Shard
from touchfs.dataset.shown_segments import segments_of
from touchfs.explore.page import ShownSegments
from touchfs.form.base import Timing
from touchfs.form.video.frames import FramesOf


class CataloguedSample(Sample):
    """A sample whose files are rows of a catalog, which is read on access."""

    __slots__ = ("_named", "_rows", "_shard", "_table")

    def __init__(
        self,
        view: str,
        shard: OpenShard,
        table: Table,
        rows: Sequence[int],
        ordinal: int,
        number: int = 0,
        shar_epoch: int | None = None,
    ) -> None:
        # Not by super().__init__, which takes a third of the time of a sample.
        self.view = view
        self.ordinal = ordinal
        self.number = number
        self.shar_epoch = shar_epoch
        self._graph_origin = None
        self._shard = shard
        self._table = table
        self._rows = rows
        self._named: dict[str, int] | None = None

    @property
    def shard(self) -> str:
        """The name of its shard."""
        return self._shard.shard.name

    @property
    def indexed_shard(self) -> Shard:
        """What is known of its shard."""
        return self._shard.shard

    @property
    def key(self) -> str:
        """The key; its ordinal with 8 digits if nothing of it can be served."""
        return self._table.key(self._rows[0]) if self._rows else f"{self.ordinal:08d}"

    @property
    def rows(self) -> dict[str, int]:
        """The rows of its files, by extension."""
        if self._named is None:
            self._named = {self.extension(row): row for row in self._rows}
        return self._named

    @property
    def stem(self) -> str | None:
        """The path of its files below their shard, without what distinguishes them; None if it has no file."""
        if not self._rows:
            return None
        path = self._table.path(self._rows[0])
        return os.fsdecode(path[: len(path) - self._table.suffix[self._rows[0]]])

    def first_path(self) -> bytes:
        if self._rows:
            return super().first_path()
        return os.fsencode(f"{self._shard.shard.path_in('shards')}/{REPORT}")

    @property
    def duration(self) -> float:
        """Seconds of its first recording, by the catalog, else by its header.

        Raises AttributeError if neither has it, as of an MP3 before `touchfs index --full`. A segment of such a
        recording has a duration: the recording is read for that.
        """
        timing = self._timing()
        return super().duration if timing is None else timing.frames / timing.rate

    def find_duration(self, most: int) -> float | None:
        row = recording_row(self._shard, self.ordinal) if self._table is self._shard.tables["shards"] else None
        if row is None or self._table.size[row] > most:
            return None
        try:
            recording = read_recording(self._shard, self._table, row)
        except DecodeLimitError:
            raise
        except FormatError:
            return None
        return recording.length / recording.rate

    @property
    def rate(self) -> int | None:
        """Sampling rate of its first recording in Hz, by the catalog, else by its header; None if neither has it."""
        try:
            timing = self._timing()
        except DecodeLimitError:
            raise
        except FormatError:  # a segment of a recording that cannot be decoded
            return None
        return super().rate if timing is None else timing.rate

    @property
    def channels(self) -> int | None:
        """Number of channels of its first recording, by the catalog, else by its header; None if neither has it."""
        try:
            timing = self._timing()
        except DecodeLimitError:
            raise
        except FormatError:  # as for `rate`
            return None
        return super().channels if timing is None or timing.channels is None else timing.channels

    def _timing(self) -> Timing | None:
        """Length, rate and channels of its first recording by the catalog."""
        timings = (self._shard.timing(self._table, row) for row in self._rows)
        return next((timing for timing in timings if timing is not None), None)

    @property
    def shown_segments(self) -> ShownSegments | None:
        return segments_of(self._shard, self.ordinal) if self._table is self._shard.tables["shards"] else None

    @property
    def segment_count(self) -> int:
        table = self._shard.tables.get("segments")
        if table is None or self._table is not self._shard.tables["shards"]:
            return 0
        return table.parts(self.ordinal)

    def extension(self, row: int) -> str:
        """The extension of the file at a row, as a key of this mapping."""
        return self._table.extension(row)

    def file(self, extension: str) -> SampleFile:
        """The file with an extension. Raises KeyError."""
        return CataloguedFile(self.view, self._shard, self._table, self.rows[extension])

    def _read(self, extension: str) -> bytes:
        return self._shard.read(self._table, self._row(extension))

    def _row(self, extension: str) -> int:
        """The row of the file with an extension. Raises KeyError. For one file, no mapping of all is built."""
        if self._named is not None:
            return self._named[extension]
        for row in reversed(self._rows):  # as in the mapping, the last of two counts
            if self.extension(row) == extension:
                return row
        raise KeyError(extension)

    def _frames(self, extension: str, fps: Fraction | None) -> FramesOf:
        self.content(extension)
        return self._shard.frames(self._table, self.rows[extension], fps)

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, extension: object) -> bool:
        return extension in self.rows

    def __copy__(self) -> CataloguedSample:
        kind = type(self)
        return kind(self.view, self._shard, self._table, self._rows, self.ordinal, self.number, self.shar_epoch)


class CataloguedFile:
    """A file that is a row of a catalog."""

    __slots__ = ("_row", "_shard", "_table", "_view")

    def __init__(self, view: str, shard: OpenShard, table: Table, row: int) -> None:
        self._view = view
        self._shard = shard
        self._table = table
        self._row = row

    @property
    def field(self) -> str:
        """The name of the sample's field from which the file is made."""
        return self._shard.kind_of(self._table, self._row).field

    def path(self) -> str:
        """Its path relative to the root of the tree."""
        return path_of(self._view, self._shard, self._table, self._row)

    def content(self) -> Content:
        """The bytes of the file, with random access."""
        return self._shard.content(self._table, self._row)


def path_of(view: str, shard: OpenShard, table: Table, row: int) -> str:
    """The path of the file at a row of a view's table, relative to the root of the tree."""
    return f"{shard.shard.path_in(view)}/{os.fsdecode(table.path(row))}"
