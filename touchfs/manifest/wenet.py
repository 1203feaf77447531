"""WeNet's raw data.list: a JSON object per line, which is an utterance. TouchNet's lists are alike.

    {"key": "monday-0000", "wav": "talks/monday.wav", "txt": "Good morning.", "start": 1.5, "end": 3.5}

Without times it is the whole file.
Source: wenet/dataset/processor.py (parse_raw, decode_wav).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from touchfs.manifest.entry import Utterance, one_line, seconds
from touchfs.manifest.reference import Reference, checked_path
from touchfs.segments.segment import Segment
from touchfs.segments.times import Times


def build_wenet(utterance: Utterance) -> str:
    """Return the line of an utterance."""
    rate, first, last = utterance.recording.rate, utterance.offset, utterance.offset + utterance.length
    line = {
        "key": utterance.id,
        "wav": utterance.recording.path,
        "txt": one_line(utterance.text),
        "start": seconds(first, rate),
        "end": seconds(last, rate),
    }
    return json.dumps(line) + "\n"


def parse_wenet(fields: Mapping[str, Any]) -> Reference:
    """Return the reference of a line's object. Raises FormatError."""
    start = fields.get("start")
    times = Times(0 if start is None else start, fields.get("end"))
    return Reference(checked_path(fields.get("wav")), None, Segment.timed(times, dict(fields)))
