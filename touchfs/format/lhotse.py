"""Lhotse cuts, as the JSON objects of its manifests. A cut is a piece of a recording with timed transcripts.

    {"id": "…", "start": 0, "duration": 9.5, "channel": 0, "type": "MonoCut",
     "supervisions": [{"id": "…", "start": 0.5, "duration": 2.25, "text": "…", …}, …],
     "recording": {…}, "features": {…}, "custom": {…}}

Times are seconds. A cut's start is relative to its recording; a supervision's start is relative to its cut, and it may
begin before the cut and end after it. Lhotse converts each time to samples separately: it rounds to 8 decimals of a
sample, because of floats that should be exactly a half, and then to the nearest integer, halves away from zero. So the
number of samples of a segment depends only on its duration.

In a Shar, Lhotse stores this object beside the bytes of a recording:

    {"id": "…", "sources": [{"type": "shar", "channels": [0], "source": ""}], "sampling_rate": 16000,
     "num_samples": 152000, "duration": 9.5, "channel_ids": [0]}

Source: lhotse/utils.py (compute_num_samples), lhotse/cut/data.py (truncate).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from math import inf
from typing import Any, NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer

# Decimal places of times in seconds.
DECIMALS = 8
_RATE_MAX, _CHANNELS_MAX, _LENGTH_MAX = 2**31 - 1, 2**16 - 1, 2**31 - 1
_BLANKS = " \t\r\n"
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Supervision:
    """A transcript of a piece of a cut. `fields` is the stored object, `cut` the start and duration of the cut."""

    text: str | None
    fields: dict[str, Any]
    cut: tuple[Any, Any]

    def span(self, rate: int, length: int) -> tuple[int, int, str | None]:
        """Return `(offset, length, problem)` in samples of the cut's recording, which has `length` samples.

        These are the samples that Lhotse loads for the cut trimmed to this supervision, limited to the cut.
        """
        begin, end = _window(self.cut, rate, length)
        start, duration = self.fields.get("start"), self.fields.get("duration")
        try:
            first = begin + _samples_in(start, rate)
            last = first + _samples_in(duration, rate)
        except (ValueError, OverflowError):
            return begin, 0, "its start and its duration are not both a time"
        if last <= first:
            return min(max(first, begin), end), 0, f"lasts {duration} s, less than a sample"
        if first >= end:
            return end, 0, f"starts at {start} s, past the cut's end at {(end - begin) / rate} s"
        if last <= begin:
            return begin, 0, f"starts at {start} s and ends before the cut begins"
        problems = []
        if first < begin:
            problems.append(f"starts at {start} s, before the cut: cut at 0 s")
        if last > end:
            problems.append(f"ends past the cut's end: cut at {(end - begin) / rate} s")
        first, last = max(first, begin), min(last, end)
        return first, last - first, "; ".join(problems) or None


class ParsedCut(NamedTuple):
    """The parts of a cut that touchfs uses. `text` joins the texts of all supervisions, in the order of time."""

    key: str | None
    text: str | None
    supervisions: tuple[Supervision, ...]


def parse_cut(fields: Mapping[str, Any]) -> ParsedCut:
    """Parse the JSON object of a cut. Values that cannot be used are treated as absent."""
    key, stored = fields.get("id"), fields.get("supervisions")
    window = fields.get("start"), fields.get("duration")
    supervisions = tuple(
        Supervision(text if isinstance(text := each.get("text"), str) else None, each, window)
        for each in (stored if isinstance(stored, list) else ())
        if isinstance(each, dict)
    )
    texts = [each.text for each in sorted(supervisions, key=_start) if each.text is not None]
    if type(key) is int:
        key = str(key)
    return ParsedCut(key if isinstance(key, str) and key else None, " ".join(texts) if texts else None, supervisions)


def find_value(line: Buffer, name: str) -> tuple[Any, int, int] | None:
    """Find a field of the JSON object in a line: its value, and the offset and length in bytes of the value's text.

    Returns None if there is no such field. As in all JSON readers, the last of several fields with one name counts.
    Raises FormatError if the line is not a JSON object in UTF-8.
    """
    try:
        text = str(line, "utf-8")
        found = None
        at = _next(text, text.index("{") + 1)
        while text[at] != "}":
            key, at = _decode(text, at)
            start = _next(text, _next(text, at) + len(":"))
            value, at = _decode(text, start)
            if key == name:
                found = value, start, at
            at = _next(text, at)
            if text[at] == ",":
                at = _next(text, at + 1)
    except (ValueError, IndexError, RecursionError) as error:
        raise FormatError("the line is not a JSON object in UTF-8") from error
    if found is None:
        return None
    value, start, end = found
    return value, len(text[:start].encode()), len(text[start:end].encode())


def parse_recording(fields: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return the sample rate in Hz, the number of channels and the samples per channel; None if any is invalid."""
    rate, channels, length = (fields.get(name) for name in ("sampling_rate", "channel_ids", "num_samples"))
    if type(rate) is not int or type(length) is not int or not isinstance(channels, list):
        return None
    if not (0 < rate <= _RATE_MAX and 0 < len(channels) <= _CHANNELS_MAX and 0 <= length <= _LENGTH_MAX):
        return None
    return rate, len(channels), length


def _window(cut: tuple[Any, Any], rate: int, length: int) -> tuple[int, int]:
    """Return the sample range of a cut; the whole recording if the cut's times are not valid."""
    try:
        first, duration = (_samples_in(time, rate) for time in cut)
    except (ValueError, OverflowError):
        return 0, length
    first = min(max(first, 0), length)
    return first, min(max(first + duration, first), length)


def _samples_in(seconds: Any, rate: int) -> int:
    """The `samples_of` a value of a manifest. Raises ValueError or OverflowError if it is not a finite number."""
    if type(seconds) not in (int, float):
        raise ValueError
    return samples_of(seconds, rate)


def samples_of(seconds: float, rate: int) -> int:
    """The number of samples in a time: rounded to `DECIMALS`, which removes floating-point errors, then half up."""
    return int(Decimal(round(seconds * rate, DECIMALS)).to_integral_value(ROUND_HALF_UP))


def _start(supervision: Supervision) -> float:
    """Return the sort key of a supervision: one without a valid start comes last."""
    start: Any = supervision.fields.get("start")
    return float(start) if type(start) in (int, float) and abs(start) < inf else inf


def _next(text: str, at: int) -> int:
    """Return the index of the first character from `at` on that is not blank."""
    while text[at] in _BLANKS:
        at += 1
    return at
