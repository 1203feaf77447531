"""The segments of a sample as a page shows them: by the files of the view `segments/` in its catalog."""

from __future__ import annotations

from math import isfinite
from typing import Any

from touchfs.core.errors import TouchfsError
from touchfs.core.json_text import parse_json
from touchfs.dataset.open_shard import OpenShard
from touchfs.explore.page import ShownSegment, ShownSegments
from touchfs.view.segments import JSON, TEXT, segment_ending

SEGMENTS_SHOWN = 200
_SPEAKER = ("speaker", "speaker_id", "spk")


def segments_of(shard: OpenShard, ordinal: int) -> ShownSegments | None:
    """The first segments of a sample, and their number; None if it has none. Damaged ones are left out."""
    table = shard.tables.get("segments")
    rows = [] if table is None else table.files(ordinal)
    if table is None or not rows:
        return None
    texts: dict[int, str] = {}
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        number, ending = table.part[row], segment_ending(table.name(row))
        if number >= SEGMENTS_SHOWN or ending not in (JSON, TEXT):
            continue
        try:
            data = shard.read(table, row)
            if ending == TEXT:
                texts[number] = data.decode("utf-8", "replace")
            elif isinstance(fields := parse_json(data), dict):
                found[number] = fields
        except (TouchfsError, ValueError, RecursionError):
            continue
    listed = [
        ShownSegment(number, *times, texts.get(number, ""), _speaker(fields))
        for number, fields in sorted(found.items())
        if (times := _times(fields.get("touchfs"))) is not None
    ]
    return ShownSegments(listed, max(table.part[row] for row in rows) + 1)


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
