"""The segments of a sample as a page shows them: by the files of the view `segments/` in its catalog."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.table import Table
from touchfs.core.errors import TouchfsError
from touchfs.core.json_text import parse_json
from touchfs.dataset.open_shard import OpenShard
from touchfs.explore.page import ShownSegment, ShownSegments
from touchfs.view.segments import JSON, TEXT, rows_of_segments, segment_ending

SEGMENTS_SHOWN = 200
# Of a sample with more segments, the times of evenly spaced ones are read.
_TIMED, _READ_TOGETHER = 4096, 256
_SPEAKER = ("speaker", "speaker_id", "spk")
# Characters of a segment's text and of its speaker that are shown.
_TEXT_SHOWN, _SPEAKER_SHOWN = 4096, 280


def segments_of(shard: OpenShard, ordinal: int, first: int = 0, most: int = SEGMENTS_SHOWN) -> ShownSegments | None:
    """The segments of a sample from a number on, and how many it has; None if it has none. It has no damaged ones."""
    table = shard.tables.get("segments")
    if table is None or not (count := table.parts(ordinal)):
        return None
    listed = []
    for number, rows in rows_of_segments(table, ordinal, first, first + most).items():
        fields, text = _fields(shard, table, rows[JSON]) if JSON in rows else {}, ""
        if (times := _times(fields.get("touchfs"))) is not None:
            with suppress(TouchfsError):
                text = shard.read(table, rows[TEXT]).decode("utf-8", "replace") if TEXT in rows else ""
            listed.append(ShownSegment(number, *times, _cut(text, _TEXT_SHOWN), _speaker(fields)))
    return ShownSegments(listed, count)


class SegmentTimes(NamedTuple):
    """Numbers of segments of a sample, and their starts and ends in seconds, shape (segments, 2): of each segment, or
    of each `step`th.
    """

    numbers: NDArray[np.int64]
    times: NDArray[np.float64]
    step: int

    def between(self, start: float, end: float) -> NDArray[np.bool_]:
        """Which are in a span of seconds, shape (segments,)."""
        found: NDArray[np.bool_] = (self.times[:, 0] < end) & (self.times[:, 1] > start)
        return found


def times_of_segments(shard: OpenShard, ordinal: int) -> SegmentTimes:
    """The times of the segments of a sample."""
    step = max(-(-shard.tables["segments"].parts(ordinal) // _TIMED), 1)
    return _timed(shard, ordinal, step=step)


def segments_between(
    shard: OpenShard, ordinal: int, timed: SegmentTimes, start: float, end: float, most: int
) -> ShownSegments:
    """The first segments that are in a span of seconds, and how many are. `timed` are the times of all. Of thousands,
    it is believed that they are in order of time, and more than are read are counted as those of which some are read.
    """
    is_inside = timed.between(start, end)
    numbers, count = timed.numbers[is_inside].tolist(), int(np.count_nonzero(is_inside))
    if timed.step > 1:
        before = timed.numbers[timed.times[:, 1] <= start]
        first, read, numbers = int(before.max(initial=0)), 0, []
        while read < _TIMED:
            near = _timed(shard, ordinal, first + read, first + read + _READ_TOGETHER)
            numbers += near.numbers[near.between(start, end)].tolist()
            read += _READ_TOGETHER
            if not (near.times[:, 0] < end).any():
                count = 0
                break
        count = max(timed.step * count, len(numbers))
    return ShownSegments([each for number in numbers[:most] for each in _one(shard, ordinal, number)], count)


def _timed(shard: OpenShard, ordinal: int, first: int = 0, stop: int | None = None, step: int = 1) -> SegmentTimes:
    table, found = shard.tables["segments"], dict[int, tuple[float, float]]()
    for row in table.files_of_parts(ordinal, first, stop, step):
        if segment_ending(table.name(row)) != JSON:
            continue
        if (times := _times(_fields(shard, table, row).get("touchfs"))) is not None:
            found[table.part[row]] = times
    return SegmentTimes(np.array([*found], np.int64), np.array([*found.values()], np.float64).reshape(-1, 2), step)


def _one(shard: OpenShard, ordinal: int, number: int) -> Sequence[ShownSegment]:
    found = segments_of(shard, ordinal, number, 1)
    return () if found is None else found.listed


def _fields(shard: OpenShard, table: Table, row: int) -> dict[str, Any]:
    """The fields of a segment's JSON file, which is at this row; {} if it cannot be read."""
    with suppress(TouchfsError, ValueError, RecursionError):
        fields = parse_json(shard.read(table, row))
        if isinstance(fields, dict):
            return fields
    return {}


def _times(derived: Any) -> tuple[float, float] | None:
    """Seconds of the start and the end of a segment, by what touchfs derived of it."""
    match derived:
        case {"sample_rate": int(rate), "offset": int(offset), "length": int(length)} if rate > 0:
            times = offset / rate, (offset + length) / rate
        case {"start": int() | float() as start, "end": int() | float() as end}:
            times = float(start), float(end)
        case _:
            return None
    return times if all(map(isfinite, times)) else None


def _speaker(fields: dict[str, Any]) -> str:
    named = (str(fields[name]) for name in _SPEAKER if isinstance(fields.get(name), str | int))
    return _cut(next(named, ""), _SPEAKER_SHOWN)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} …"
