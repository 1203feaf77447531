"""NeMo's manifest beside its tars, `tarred_audio_manifest.json`: an object on each line.

    {"audio_filepath": "talk.wav", "offset": 0, "duration": 1.5, "text": "Good morning.", "shard_id": 0}
    {"audio_filepath": "talk-sub1.wav", "offset": 1.5, "duration": 2.0, "text": "This is a talk.", "shard_id": 0}

A line is a part of a recording in the tar `audio_0.tar`, whose number is its `shard_id`. A recording with several lines
is one member of the tar, and the names of all lines but the first have an end that the member has not: `-sub1`,
`-sub2`, …. Without an offset a part begins with its recording.
Source: NeMo, scripts/speech_recognition/convert_to_tarred_audio_dataset.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.core.json_text import parse_json
from touchfs.manifest.nemo import parse_nemo
from touchfs.segments.formats.lines import at_line, lines
from touchfs.segments.segment import Segment
from touchfs.shard.single import TAR_OF_NEMO

_PART = re.compile(r"-sub[0-9]+$")


def parse_entries(blocks: Iterable[Buffer]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the object of each line with the id of its recording. Raises FormatError."""
    for number, line in lines(blocks):
        if not line.strip():
            continue
        try:
            fields = parse_json(line.encode())
        except (ValueError, RecursionError) as error:
            raise at_line(number, f"not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise at_line(number, "not an object")
        try:
            path = parse_nemo(fields).path or ""
        except FormatError as error:
            raise at_line(number, error.message) from error
        key = _PART.sub("", os.path.splitext(path)[0])
        yield f"{fields.get('shard_id', '')}/{key}", fields


def ids_in(shard: str, key: str) -> list[str]:
    """The ids that the recording of a sample may have, by the path of its shard and its key."""
    number = TAR_OF_NEMO.fullmatch(os.path.basename(shard))
    return [f"/{key}"] if number is None else [f"{int(number[1])}/{key}", f"/{key}"]


def segment_of(fields: dict[str, Any]) -> Segment:
    """The part of its recording that the object of a line is."""
    return parse_nemo(fields).segment


def place_of(fields: dict[str, Any]) -> tuple[float, float]:
    """The offset and the duration of a part, by which the parts of a recording are sorted."""
    offset, duration = (fields.get(name) for name in ("offset", "duration"))
    return _number(offset), _number(duration)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
