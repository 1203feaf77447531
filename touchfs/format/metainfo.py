"""TouchNet's metainfo: one JSON object per sample in UTF-8, as TouchNet's make_data writes it.

    {"key": "…", "wav": "…", "txt": "…", "sample_rate": 16000,
     "info": {"segments": [{"start": 0.0, "end": 1.2, "txt": "…"}, …]}}

All values come from users, so every field may be missing or of another type. A key may be an integer, and a time
anything that `float()` accepts. Values that cannot be used are treated as absent; the stored bytes are never changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.core.json_text import parse_json

RATE_MAX = 2**31 - 1
_SHOWN_MAX = 80


@dataclass(frozen=True, slots=True)
class TouchNetSegment:
    """A piece of a recording. `start` and `end`, in seconds, are as stored; `fields` is the whole stored object."""

    start: Any
    end: Any
    text: str | None
    fields: dict[str, Any]

    @classmethod
    def of(cls, fields: dict[str, Any]) -> TouchNetSegment:
        """Return the segment that a stored object describes."""
        return cls(fields.get("start"), fields.get("end"), _text(fields), fields)

    def span(self, rate: int, length: int) -> tuple[int, int, str | None]:
        """Return `(offset, length, problem)` in samples of a recording with `length` samples.

        Truncates as TouchNet does (`int(float(t) * rate)` at either end), but stays inside the recording, where
        TouchNet's reader continues into the next one. An end of -1 means the end of the recording.
        """
        try:
            start, end = float(self.start), float(self.end)
            first, last = int(start * rate), int(end * rate)
        except (TypeError, ValueError, OverflowError):  # no number, NaN, infinite
            return 0, 0, f"{shown_time(self.start)} to {shown_time(self.end)} is not a time"
        if end == -1:
            last = length
        return cut_span(first, last, rate, length, start, end)


def cut_span(first: int, last: int, rate: int, length: int, start: float, end: float) -> tuple[int, int, str | None]:
    """Return `(offset, length, problem)` of the part of `[first, last)` inside a recording of `length` samples.

    `start` and `end` are the same in seconds, as the tool gives them. `problem` is one line, None if nothing was cut.
    """
    if first >= length:
        return length, 0, f"starts at {start} s, past the recording's end at {length / rate} s"
    if last <= first:
        reason = "shorter than one sample" if end > start else "not after its start"
        return max(first, 0), 0, f"ends at {end} s, {reason} at {start} s"
    if last <= 0:
        return 0, 0, f"ends at {end} s, before the recording begins"
    problems = []
    if first < 0:
        problems.append(f"starts at {start} s, before the recording: cut at 0 s")
    if last > length:
        problems.append(f"ends at {end} s, past the recording's end: cut at {length / rate} s")
    first, last = max(first, 0), min(last, length)
    return first, last - first, "; ".join(problems) or None


def shown_time(value: object) -> str:
    """Return a stored value that should be a time, for a message on one line: as JSON has it, but text in 'quotes'."""
    try:
        text = repr(value) if isinstance(value, str) else json.dumps(value)
    except (RecursionError, ValueError, TypeError):  # nested too deep, an integer of too many digits, not of JSON
        text = type(value).__name__
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


@dataclass(frozen=True, slots=True)
class Metainfo:
    """The fields that touchfs uses, `rate` in Hz, None if absent or invalid; and all `fields` as stored."""

    key: str | None
    text: str | None
    rate: int | None
    fields: Mapping[str, Any]


def parse_object(data: Buffer) -> dict[str, Any]:
    """Return all fields as stored. Raises FormatError if the bytes are not one JSON object in UTF-8."""
    try:
        fields = parse_json(bytes(data), "utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("metainfo is not UTF-8", offset=error.start) from error
    except json.JSONDecodeError as error:
        raise FormatError(f"metainfo is not JSON: {error.msg}", offset=error.pos) from error
    except (RecursionError, ValueError) as error:
        raise FormatError(
            "metainfo is not JSON that can be read: nested too deep, or a number too long", offset=0
        ) from error
    if not isinstance(fields, dict):
        raise FormatError("metainfo is not a JSON object", offset=0)
    return fields


def parse_metainfo(data: Buffer) -> Metainfo:
    """Return the fields that touchfs uses. Raises FormatError as `parse_object` does."""
    fields = parse_object(data)
    rate = fields.get("sample_rate")
    return Metainfo(
        key=_key(fields.get("key")),
        text=_text(fields),
        rate=rate if type(rate) is int and 0 < rate <= RATE_MAX else None,
        fields=fields,
    )


def _key(value: object) -> str | None:
    if type(value) is int:
        return str(value)
    return value if isinstance(value, str) and value else None


def _text(fields: dict[str, Any]) -> str | None:
    """`txt` is TouchNet's name; metainfo made for its text recipes has `text`."""
    for name in ("txt", "text"):
        if isinstance(fields.get(name), str):
            return str(fields[name])
    return None
