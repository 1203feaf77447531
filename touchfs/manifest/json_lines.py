"""The line of a list in JSON, of any tool whose lines point to audio. Their fields tell the tools apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from touchfs.manifest.lhotse import parse_lhotse
from touchfs.manifest.nemo import parse_nemo
from touchfs.manifest.reference import Reference
from touchfs.manifest.wenet import parse_wenet

# By a field that only the lines of one tool have. A cut and a recording of Lhotse's have different ones.
_PARSERS = {
    "audio_filepath": parse_nemo,
    "wav": parse_wenet,
    "sources": parse_lhotse,
    "recording": parse_lhotse,
    "recording_id": parse_lhotse,
}


def parse_reference(fields: Mapping[str, Any]) -> Reference | None:
    """Return what the object of a line points to; None if it points to nothing. Raises FormatError."""
    for name, parse in _PARSERS.items():
        if name in fields:
            return parse(fields)
    return None
