"""The segments of a sample as a page shows them: by the files of the view `segments/` in its catalog."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.table import Table
from touchfs.core.errors import TouchfsError
from touchfs.core.json_text import parse_json
from touchfs.dataset.open_shard import OpenShard
from touchfs.explore.page import ShownSegment, ShownSegments
from touchfs.view.segments import JSON, TEXT, rows_of_segments

SEGMENTS_SHOWN = 200
# Of a sample with more segments, the times of evenly spaced ones are read.
_TIMED = 4096
_SPEAKER = ("speaker", "speaker_id", "spk")


def segments_of(shard: OpenShard, ordinal: int, first: int = 0, most: int = SEGMENTS_SHOWN) -> ShownSegments | None:
    """The segments of a sample from a number on, and how many it has; None if it has none. It has no damaged ones."""
    table = shard.tables.get("segments")
    files = [] if table is None else table.files(ordinal)
    if table is None or not files:
        return None
    listed = []
    for number, rows in rows_of_segments(table, ordinal, first, first + most).items():
        fields, text = _fields(shard, table, rows), ""
        if (times := _times(fields.get("touchfs"))) is not None:
            with suppress(TouchfsError):
                text = shard.read(table, rows[TEXT]).decode("utf-8", "replace") if TEXT in rows else ""
            listed.append(ShownSegment(number, *times, text, _speaker(fields)))
    return ShownSegments(listed, table.part[files[-1]] + 1)


def segments_between(
    shard: OpenShard, ordinal: int, start: float, end: float, most: int = SEGMENTS_SHOWN
) -> ShownSegments | None:
    """The first segments that are in a span of seconds, and how many are. Of thousands, it is believed that they are
    in order of time, and more than are read are counted as those of which some are read.
    """
    table = shard.tables.get("segments")
    files = [] if table is None else table.files(ordinal)
    if table is None or not files:
        return None
    step = -(-(table.part[files[-1]] + 1) // _TIMED)
    timed, first = _timed(shard, table, ordinal, step=step), 0
    count = step * sum(begin < end and last > start for _, (begin, last) in timed)
    if step > 1:
        first = max((number for number, (_, last) in timed if last <= start), default=0)
        timed = _timed(shard, table, ordinal, first, first + _TIMED)
    found = [number for number, (begin, last) in timed if begin < end and last > start]
    listed = [each for number in found[:most] for each in _one(shard, ordinal, number)]
    return ShownSegments(listed, max(count, len(found)) if len(timed) == _TIMED else len(found))


def times_of_segments(shard: OpenShard, ordinal: int) -> tuple[NDArray[np.float64], int]:
    """Starts and ends of segments of a sample in seconds, shape (segments, 2): of each one, or of every so many."""
    table = shard.tables["segments"]
    files = table.files(ordinal)
    step = -(-(table.part[files[-1]] + 1) // _TIMED)
    found = [times for _, times in _timed(shard, table, ordinal, step=step)]
    return np.array(found, np.float64).reshape(-1, 2), step


def _timed(
    shard: OpenShard, table: Table, ordinal: int, first: int = 0, stop: int | None = None, step: int = 1
) -> list[tuple[int, tuple[float, float]]]:
    """Numbers and seconds of segments."""
    return [
        (number, times)
        for number, rows in rows_of_segments(table, ordinal, first, stop, step).items()
        if (times := _times(_fields(shard, table, rows).get("touchfs"))) is not None
    ]


def _one(shard: OpenShard, ordinal: int, number: int) -> Sequence[ShownSegment]:
    found = segments_of(shard, ordinal, number, 1)
    return () if found is None else found.listed


def _fields(shard: OpenShard, table: Table, rows: dict[str, int]) -> dict[str, Any]:
    """What the JSON of a segment has, by the rows of its files."""
    with suppress(TouchfsError, ValueError, RecursionError):
        fields = parse_json(shard.read(table, rows[JSON])) if JSON in rows else None
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
    return next((str(fields[name]) for name in _SPEAKER if isinstance(fields.get(name), str | int)), "")
