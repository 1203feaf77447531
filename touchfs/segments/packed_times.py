"""The times of segments as bytes, for a recording whose rate and length are known only when it is read.

Rounding to samples depends on who stored a time. So what is packed is the rule and its numbers as stored, and the span
is the same as if the recording had been known when it was indexed. As JSON, a list for each segment:

    ["times", start, end, duration]                   seconds, or null
    ["samples", start, end, duration]                 counts of samples, or null
    ["touchnet", start, end]                          seconds
    ["cut", start, duration, cut start, cut duration] seconds

The bytes of several segments describe one span, from the start of the first to the latest end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.format.lhotse import Supervision
from touchfs.format.metainfo import TouchNetSegment
from touchfs.segments.segment import Spanned
from touchfs.segments.times import Times

# As rate and length, a recording without end, in microseconds.
CLOCK_RATE, ENDLESS = 10**6, 2**53

_RULES: dict[str, tuple[int, Callable[..., Spanned]]] = {
    "times": (3, Times),
    "samples": (3, lambda start, end, duration: Times(start, end, duration, in_samples=True)),
    "touchnet": (2, lambda start, end: TouchNetSegment(start, end, None, {})),
    "cut": (4, lambda start, duration, *cut: Supervision(None, {"start": start, "duration": duration}, cut)),
}
_EMPTY = ["times", 0, 0, None]
_DAMAGED = "the catalog's times of a segment are damaged: index with --force"


def pack_times(times: Spanned) -> bytes:
    """The times of a segment as bytes. Times that cannot be used become those of an empty segment."""
    match times:
        case Times():
            rule = "samples" if times.in_samples else "times"
            packed = [rule, times.start, times.end, times.duration if times.end is None else None]
        case TouchNetSegment():
            packed = ["touchnet", times.start, times.end]
        case Supervision():
            window = times.cut if all(map(_is_number, times.cut)) else (None, None)
            packed = ["cut", times.fields.get("start"), times.fields.get("duration"), *window]
        case _:
            raise TypeError(f"{type(times).__name__} has no rule")
    rule, *values = packed
    try:
        # Lhotse takes only numbers; all others whatever `float()` takes.
        values = [float(value) if isinstance(value, str | bool) and rule != "cut" else value for value in values]
    except ValueError:
        return _build([_EMPTY])
    return _build([[rule, *values] if all(value is None or _is_number(value) for value in values) else _EMPTY])


def seconds_of(times: Spanned) -> tuple[dict[str, Any], str | None]:
    """`start` and `end` of a segment in seconds, and the `problem` of its times. The recording's end is None.

    Times in samples give `offset` and `length` in samples instead.
    """
    first, length, problem = times.span(CLOCK_RATE, ENDLESS)
    has_end = first + length < ENDLESS
    if isinstance(times, Times) and times.in_samples:
        return {"offset": first, "length": length if has_end else None}, problem
    return {"start": first / CLOCK_RATE, "end": (first + length) / CLOCK_RATE if has_end else None}, problem


def join_times(packed: Iterable[Buffer]) -> bytes:
    """The bytes of the span of several segments, the first of which starts first. Raises FormatError.

    The bytes after the NUL behind the first times stay. No times have a NUL.
    """
    parts = [bytes(each).partition(b"\0") for each in packed]
    return b"".join((_build([each for times, _, _ in parts for each in _parse(times)]), *parts[0][1:]))


@dataclass(frozen=True, slots=True)
class PackedTimes:
    """The span that bytes describe. Raises FormatError if they are damaged."""

    times: tuple[Spanned, ...]

    @classmethod
    def parse(cls, data: Buffer) -> PackedTimes:
        """Parse what `pack_times` or `join_times` returned."""
        return cls(tuple(_RULES[rule][1](*values) for rule, *values in _parse(data)))

    @property
    def in_samples(self) -> bool:
        """True if times count samples, at the rate of the recording."""
        return any(isinstance(times, Times) and times.in_samples for times in self.times)

    def span(self, rate: int, length: int) -> tuple[int, int, str | None]:
        """Return `(offset, length, problem)` in samples, always inside a recording of `length` samples at `rate` Hz."""
        spans = [times.span(rate, length) for times in self.times]
        first = spans[0][0]
        problems = "; ".join(problem for _, _, problem in spans if problem)
        return first, max(start + count for start, count, _ in spans) - first, problems or None


def _parse(data: Buffer) -> list[list[Any]]:
    try:
        packed = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(_DAMAGED) from error
    if not isinstance(packed, list) or not packed or not all(map(_is_sound, packed)):
        raise FormatError(_DAMAGED)
    return packed


def _is_sound(packed: object) -> bool:
    match packed:
        case [str(rule), *values] if rule in _RULES:
            return len(values) == _RULES[rule][0] and all(value is None or _is_number(value) for value in values)
    return False


def _is_number(value: object) -> bool:
    """True if a value can be packed: Python neither writes nor reads integers of over 4,300 digits."""
    match value:
        case bool():
            return False
        case int():
            return value.bit_length() < 1 << 13
        case float():
            return isfinite(value)
    return False


def _build(packed: list[list[Any]]) -> bytes:
    return json.dumps(packed, separators=(",", ":")).encode()
