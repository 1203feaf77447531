"""Praat's `.TextGrid`, in its long and its short text format.

Praat reads both alike, and so does this: only strings in double quotes, free-standing numbers and flags in angle
brackets count, and everything else is decoration.

    "ooTextFile" "TextGrid"   start end <exists>   number of tiers
    for each tier: "IntervalTier" "name" start end   number of intervals   (start end "label") …

A segment is an interval with a label that is not blank. A tier all of whose segments lie inside segments of an earlier
one divides them further, as phones do words, and is left out; tiers of points are left out, too. If several tiers are
left, their names are the speakers. Segments are in order of their starts.

Libraries were not taken, as they read by the layout of lines, which Praat does not: textgrid and praat-textgrids (GPL)
fail at a label of two lines, and praatio drops the second.
Source: Praat's manual, "TextGrid file formats".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.segments.formats.lines import SIZE_MAX, TEXT_MAX, at_line, at_most, lines, seconds, shown
from touchfs.segments.segment import SEGMENTS_MAX, Segment

_TOKEN = re.compile(r'\s+|!.*|(<[^>\s]*>)|([^\s"]\S*)|(")')
_STRING_PART = re.compile(r'[^"]*')
_FREE_NUMBER = re.compile(r"[-+]?[0-9.][0-9.eE+-]*")
_EDGE = 1e-6  # seconds; tools write the edges of tiers with different numbers of digits
# Every tier is compared with all before it.
_TIERS_MAX = 32


class _Token(NamedTuple):
    line: int
    kind: str  # "string", "number" or "flag"
    text: str


class _Interval(NamedTuple):
    start: float
    end: float
    label: str


def parse_textgrid(blocks: Iterable[Buffer]) -> Iterator[Segment]:
    """Yield the segments of a file. Raises FormatError."""
    tokens = _tokens(lines(at_most(SIZE_MAX, blocks)))
    if (kind := _take(tokens, "string").text) != "ooTextFile":
        raise FormatError(f"{shown(kind)} is not a TextGrid in one of Praat's text formats: save it as text file")
    if (kind := _take(tokens, "string").text) != "TextGrid":
        raise FormatError(f"the object is a {shown(kind)}, not a TextGrid")
    for _ in range(2):
        _take(tokens, "number")
    tiers = _tiers(tokens) if _take(tokens, "flag").text == "<exists>" else []
    segments = []
    for name, intervals in tiers:
        label = {"speaker": name} if len(tiers) > 1 and name else {}
        for start, end, text in intervals:
            fields: dict[str, Any] = {"start": start, "end": end, "text": text}
            segments.append(Segment.of(fields | label | {"tier": name}))
    yield from sorted(segments, key=lambda segment: float(segment.fields["start"]))


def _tiers(tokens: Iterator[_Token]) -> list[tuple[str, list[_Interval]]]:
    """The tiers that have segments and do not divide an earlier one."""
    tiers: list[tuple[str, list[_Interval]]] = []
    count = 0
    for _ in range(_count(tokens)):
        name, intervals = _tier(tokens, SEGMENTS_MAX - count)
        count += len(intervals)
        if intervals and not any(_divides(intervals, earlier) for _, earlier in tiers):
            if len(tiers) == _TIERS_MAX:
                raise FormatError(f"has more than {_TIERS_MAX} tiers of segments: split it")
            tiers.append((name, intervals))
    return tiers


def _tier(tokens: Iterator[_Token], limit: int) -> tuple[str, list[_Interval]]:
    """The name of the next tier and its intervals with labels, in order of their starts; none for a tier of points."""
    kind, name = _take(tokens, "string"), _take(tokens, "string").text
    if kind.text not in ("IntervalTier", "TextTier"):
        raise at_line(kind.line, f"{shown(kind.text)} is no kind of tier")
    for _ in range(2):
        _take(tokens, "number")
    intervals: list[_Interval] = []
    for _ in range(_count(tokens)):
        edges = [_take(tokens, "number") for _ in range(2 if kind.text == "IntervalTier" else 1)]
        label = _take(tokens, "string").text.strip()
        if label and len(edges) == 2:
            if len(intervals) == limit:
                raise FormatError(f"has more than {SEGMENTS_MAX:,} segments: split it")
            start, end = (seconds(edge.line, edge.text) for edge in edges)
            intervals.append(_Interval(start, end, label))
    return name, sorted(intervals, key=lambda interval: interval.start)


def _divides(tier: list[_Interval], earlier: list[_Interval]) -> bool:
    starts = [interval.start for interval in earlier]
    for start, end, _ in tier:
        at = bisect_right(starts, start + _EDGE) - 1
        if at < 0 or earlier[at].end < end - _EDGE:
            return False
    return True


def _take(tokens: Iterator[_Token], kind: str) -> _Token:
    """The next token of this kind. As in Praat, numbers and flags on the way to it are skipped, but not strings."""
    for token in tokens:
        if token.kind == kind:
            return token
        if token.kind == "string":
            raise at_line(token.line, f"{shown(token.text)} stands where a {kind} is expected")
    raise FormatError(f"ends where a {kind} is expected")


def _count(tokens: Iterator[_Token]) -> int:
    token = _take(tokens, "number")
    if not token.text.isdecimal() or len(token.text) > 9:
        raise at_line(token.line, f"{shown(token.text)} is not a number of tiers or intervals")
    return int(token.text)


def _tokens(numbered: Iterable[tuple[int, str]]) -> Iterator[_Token]:
    parts: list[str] | None = None  # of a string that has begun
    size = 0
    for number, line in numbered:
        at = 0
        while at < len(line):
            if parts is None:
                match = _TOKEN.match(line, at)
                if match is None:  # never: every character begins a token
                    break
                at = match.end()
                flag, word, quote = match.groups()
                if quote:
                    parts, size = [], 0
                elif flag:
                    yield _Token(number, "flag", flag)
                elif word and _FREE_NUMBER.fullmatch(word):
                    yield _Token(number, "number", word)
                continue
            part = _STRING_PART.match(line, at)
            end = part.end() if part else at
            parts.append(line[at:end])
            at = end + 1
            if line[end : end + 2] == '""':
                parts.append('"')
                at = end + 2
            elif end < len(line):
                yield _Token(number, "string", "".join(parts))
                parts = None
        if parts is not None:  # a label of several lines
            parts.append("\n")
            size += len(line) + 1
            if size > TEXT_MAX:
                raise at_line(number, f"a string has over {TEXT_MAX:,} characters")
    if parts is not None:
        raise FormatError("ends inside a string")
