"""NeMo's manifests: a JSON object per line, which is an utterance.

    {"audio_filepath": "talks/monday.wav", "offset": 1.5, "duration": 2.0, "text": "Good morning.", "lang": "en"}

Without an offset it begins with the file; without a duration it ends with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from touchfs.manifest.entry import Utterance, one_line, seconds
from touchfs.manifest.reference import Reference, checked_path
from touchfs.segments.segment import Segment
from touchfs.segments.times import Times


def build_nemo(utterance: Utterance) -> str:
    """Return the line of an utterance."""
    rate = utterance.recording.rate
    line = {
        "audio_filepath": utterance.recording.path,
        "offset": seconds(utterance.offset, rate),
        "duration": seconds(utterance.length, rate),
        "text": one_line(utterance.text),
    }
    labels = {"speaker": utterance.speaker, "lang": utterance.language}
    return json.dumps(line | {name: label for name, label in labels.items() if label}) + "\n"


def parse_nemo(fields: Mapping[str, Any]) -> Reference:
    """Return the reference of a line's object. Raises FormatError."""
    offset, duration = fields.get("offset"), fields.get("duration")
    times = Times(0 if offset is None else offset, None, duration)
    return Reference(checked_path(fields.get("audio_filepath")), None, Segment.timed(times, dict(fields)))
