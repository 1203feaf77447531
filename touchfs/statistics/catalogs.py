"""Statistics of a shard by its catalog: recordings, lengths of these and of segments, sizes of files.

Durations are in ticks of 1/1024 s, so bars of a width that is a power of two are parts of a second. Recordings whose
length no catalog has are counted as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import Catalog, FileKind
from touchfs.catalog.columns import as_array
from touchfs.catalog.table import DIRECTORY, NO_SAMPLE, Table
from touchfs.core.errors import FormatError
from touchfs.dataset.recordings.recording_formats import RecordingFormat, RecordingFormats, extensions_of_rows
from touchfs.form.recordings import Pcm
from touchfs.registry.forms import parse_form
from touchfs.statistics.buckets import LARGEST, Histogram

TICKS = 1024
# Extensions that are told apart; further files are counted together, under "".
_EXTENSIONS = 64
_UNKNOWN = -1


@dataclass(slots=True)
class CatalogStatistics:
    """Statistics of some shards: their recordings by format. `durations` and `segment_lengths` are in ticks, `segments`
    are those of each sample that has any, `files` the number and the bytes of files by extension.
    """

    samples: int = 0
    recordings: RecordingFormats = field(default_factory=RecordingFormats)
    durations: Histogram = field(default_factory=Histogram)
    segment_lengths: Histogram = field(default_factory=Histogram)
    segments: Histogram = field(default_factory=Histogram)
    files: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog, ordinals: NDArray[np.int64] | None = None) -> CatalogStatistics:
        """Count a shard, or its samples with these ordinals. Raises FormatError if its catalog is damaged."""
        found, table = cls(catalog.facts.samples if ordinals is None else len(ordinals)), catalog.tables["shards"]
        try:
            rows = _rows(table, ordinals)
            found.recordings.add(table, catalog.kinds, rows)
            found.durations.add(_firsts(table, _ticks(table, catalog.kinds, rows)))
            found._count_files(table, rows)
            if (segments := catalog.tables.get("segments")) is not None:
                rows = _rows(segments, ordinals)
                ticks = _ticks(segments, catalog.kinds, rows)
                found.segment_lengths.add(ticks[ticks >= 0])
                found.segments.add(_tally(segments, rows))
        except (IndexError, ValueError) as error:
            raise FormatError("its catalog is damaged: index with --force", path=table.path_of_catalog) from error
        return found

    def _count_files(self, table: Table, rows: NDArray[np.int64]) -> None:
        sizes = as_array(table.size)
        for extension, same in extensions_of_rows(table, rows):
            self._add_files(extension, len(same), int(sizes[same].sum(dtype=np.int64)))

    def _add_files(self, extension: str, count: int, size: int) -> None:
        if extension not in self.files and len(self.files) >= _EXTENSIONS:
            extension = ""
        files, total = self.files.get(extension, (0, 0))
        self.files[extension] = files + count, total + size

    def merge(self, other: CatalogStatistics) -> None:
        """Add those of other shards."""
        self.samples += other.samples
        self.recordings.counts.update(other.recordings.counts)
        self.durations.merge(other.durations)
        self.segment_lengths.merge(other.segment_lengths)
        self.segments.merge(other.segments)
        for extension, (count, size) in other.files.items():
            self._add_files(extension, count, size)

    def to_json(self) -> dict[str, Any]:
        """As JSON, for `from_json`."""
        return {
            "samples": self.samples,
            "recordings": [[*each, count] for each, count in self.recordings.counts.items()],
            "durations": self.durations.to_json(),
            "segment_lengths": self.segment_lengths.to_json(),
            "segments": self.segments.to_json(),
            "files": [[name, *counts] for name, counts in self.files.items()],
        }

    @classmethod
    def from_json(cls, value: Any) -> CatalogStatistics:
        """What `to_json` returned. Raises ValueError, TypeError or KeyError for anything else."""
        histograms = [Histogram.from_json(value[name]) for name in ("durations", "segment_lengths", "segments")]
        files = {str(name): (int(count), int(size)) for name, count, size in value["files"]}
        recordings = RecordingFormats()
        for coding, rate, channels, count in value["recordings"]:
            numbers = (None if each is None else int(each) for each in (rate, channels))
            recordings.counts[RecordingFormat(str(coding), *numbers)] += int(count)
        durations, lengths, segments = histograms
        return cls(int(value["samples"]), recordings, durations, lengths, segments, files)


def _rows(table: Table, ordinals: NDArray[np.int64] | None) -> NDArray[np.int64]:
    of = as_array(table.ordinal)
    rows = np.flatnonzero((as_array(table.kind) != DIRECTORY) & (of != NO_SAMPLE))
    return rows if ordinals is None else rows[np.isin(of[rows], ordinals)]


def _ticks(table: Table, kinds: Sequence[FileKind], chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """The duration of each chosen row in ticks; -1 for others, and for what is no recording, or of unknown length."""
    columns = as_array(table.kind), as_array(table.frames), as_array(table.length)
    found = np.full(table.rows, _UNKNOWN, np.int64)
    for number, kind in enumerate(kinds, 1):
        form = parse_form(kind.form)
        rows = np.flatnonzero(columns[0] == number) if kind.rate or isinstance(form, Pcm) else ()
        if not len(rows):
            continue
        if kind.rate:
            found[rows] = np.clip(columns[1][rows], 0, LARGEST).astype(np.int64) * TICKS // kind.rate
        elif isinstance(form, Pcm):
            found[rows] = np.clip(columns[2][rows], 0, LARGEST).astype(np.int64) // form.frame_size * TICKS // form.rate
    others = np.ones(table.rows, bool)
    others[chosen] = False
    found[others] = _UNKNOWN
    return found


def _firsts(table: Table, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ticks of the first recording of each sample that has one of known length."""
    order = as_array(table.order).astype(np.int64)
    order = order[ticks[order] >= 0]
    ordinals = as_array(table.ordinal)[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = ordinals[1:] != ordinals[:-1]
    return ticks[order[is_first]]


def _tally(table: Table, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    ordinals, parts = as_array(table.ordinal)[rows].astype(np.int64), as_array(table.part)[rows].astype(np.int64)
    if not len(rows):
        return parts
    by_sample = np.lexsort((parts, ordinals))
    ordinals, parts = ordinals[by_sample], parts[by_sample]
    is_last = np.append(ordinals[1:] != ordinals[:-1], True)
    counts: NDArray[np.int64] = parts[is_last] + 1
    return counts
