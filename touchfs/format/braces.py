"""Names with braces, as in WebDataset and bash: `train-{000..099}.tar`, `{train,dev}.tar`, `{a,b{1..3}}`.

    {000..099}      numbers, as wide as written if one begins with 0; downwards if the first is larger
    {0..10..2}      each second of them
    {a..f}          letters
    {train,dev}     texts, which may have braces themselves, or be empty
    _OP_0..9_CL_    as NeMo writes `{0..9}`, because braces mean something else to its configurations

All else is literal: braces that do not match, and `{x}`. There are no escapes. The order is that of bash.

Source: bash's manual, Brace Expansion; the package braceexpand, which WebDataset uses. That package makes the names of
each brace before it returns the first, so `{0..9999999999}` takes all memory. Here they are counted first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from string import ascii_letters

from touchfs.errors import UsageError

NAMES_MAX = 1_000_000
_DEPTH_MAX = 32
_CLOSING = {"{": "}", "_OP_": "_CL_"}
_MARKS = re.compile(r"(\{|\}|_OP_|_CL_|,)")
# Longer numbers are more than names can be anyway, and Python refuses those of thousands of digits.
_NUMBERS = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.-?([0-9]{1,18}))?")
# A number is at most as wide as its ends are written, with a sign.
_DIGITS = re.compile(r"-?[0-9]{0,19}")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?([0-9]{1,18}))?")
_LETTER_ORDER = ascii_letters[26:] + ascii_letters[:26]


@dataclass(frozen=True, slots=True)
class _Range:
    """Numbers of at least `width` characters, or if that is None, letters by their positions."""

    positions: range
    width: int | None


# What follows each other in a name: texts, ranges, and lists of alternatives.
_Part = str | _Range | list[list["_Part"]]


@dataclass(frozen=True, slots=True)
class BracePattern:
    """The names that a text with braces stands for, made one by one. `prefix` is the text before the first brace."""

    prefix: str
    count: int
    _parts: list[_Part] = field(repr=False)

    def __iter__(self) -> Iterator[str]:
        return _names(self._parts)

    def __contains__(self, text: object) -> bool:
        """True for one of the names. This makes none of them."""
        return isinstance(text, str) and len(text) in _ends(self._parts, text, {0})


@dataclass(slots=True)
class _Open:
    """A brace that is not closed yet, and the alternatives in it so far."""

    mark: str
    alternatives: list[list[_Part]] = field(default_factory=lambda: [[]])

    def literal(self) -> list[_Part]:
        """The parts if this brace stands for itself."""
        parts: list[_Part] = [self.mark, *self.alternatives[0]]
        for each in self.alternatives[1:]:
            parts += [",", *each]
        return parts


def parse_braces(text: str) -> BracePattern | None:
    """Return the names that a text stands for; None if it has no braces that stand for any.

    Raises UsageError for more than `NAMES_MAX` names, and for braces nested more than 32 deep.
    """
    if "{" not in text and "_OP_" not in text:
        return None
    parts, start = _parse(text)
    if start is None:
        return None
    if (count := _count(parts)) > NAMES_MAX:
        raise UsageError(f"these braces stand for more than {NAMES_MAX:,} names", path=text)
    return BracePattern(text[:start], count, parts)


def _parse(text: str) -> tuple[list[_Part], int | None]:
    """The parts of a text, and where the first brace begins that is not literal, or None."""
    stack, starts = [_Open("")], list[int]()
    first: int | None = None
    at = 0
    for token in _MARKS.split(text):
        here = stack[-1].alternatives
        if token in _CLOSING:
            if len(stack) > _DEPTH_MAX:
                raise UsageError(f"these braces are nested more than {_DEPTH_MAX} deep", path=text)
            stack.append(_Open(token))
            starts.append(at)
        elif token == "," and len(stack) > 1:
            here.append([])
        elif token and token == _CLOSING.get(stack[-1].mark):
            closed, start = stack.pop(), starts.pop()
            group = _group(closed.alternatives)
            stack[-1].alternatives[-1] += [*closed.literal(), token] if group is None else [group]
            if group is not None:
                first = start if first is None else min(first, start)
        elif token:
            here[-1].append(token)
        at += len(token)
    while len(stack) > 1:
        unclosed = stack.pop()
        stack[-1].alternatives[-1] += unclosed.literal()
    return stack[0].alternatives[0], first


def _group(alternatives: list[list[_Part]]) -> _Part | None:
    """The part of a name that a closed brace stands for; None if the brace is literal."""
    if len(alternatives) > 1:
        return alternatives
    match alternatives[0]:
        case [str(text)] if found := _NUMBERS.fullmatch(text):
            ends = found[1], found[2]
            is_padded = any(end.lstrip("-").startswith("0") and end.lstrip("-") != "0" for end in ends)
            positions = _positions(int(found[1]), int(found[2]), found[3])
            return _Range(positions, max(map(len, ends)) if is_padded else 0)
        case [str(text)] if found := _LETTERS.fullmatch(text):
            return _Range(_positions(_LETTER_ORDER.index(found[1]), _LETTER_ORDER.index(found[2]), found[3]), None)
    return None


def _positions(first: int, last: int, step: str | None) -> range:
    by = int(step or 1) or 1
    return range(first, last + 1, by) if first <= last else range(first, last - 1, -by)


def _count(parts: list[_Part]) -> int:
    return prod(_choices(part) for part in parts)


def _choices(part: _Part) -> int:
    if isinstance(part, str):
        return 1
    if isinstance(part, _Range):
        # A range longer than a machine's integer has no len().
        return (part.positions[-1] - part.positions[0]) // part.positions.step + 1
    return sum(map(_count, part))


def _names(parts: list[_Part], at: int = 0, before: str = "") -> Iterator[str]:
    while at < len(parts) and _choices(part := parts[at]) == 1:
        before += next(_texts(part))
        at += 1
    if at == len(parts):
        yield before
        return
    # A part of several texts at least doubles the names, so there are at most 20 in a row.
    for text in _texts(parts[at]):
        yield from _names(parts, at + 1, before + text)


def _texts(part: _Part) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, _Range):
        for position in part.positions:
            yield _LETTER_ORDER[position] if part.width is None else f"{position:0{part.width}}"
    else:
        for alternative in part:
            yield from _names(alternative)


def _ends(parts: list[_Part], text: str, starts: set[int]) -> set[int]:
    """The positions in a text at which names of the parts may end, if they begin at one of `starts`."""
    for part in parts:
        starts = {end for start in starts for end in _part_ends(part, text, start)}
    return starts


def _part_ends(part: _Part, text: str, start: int) -> set[int]:
    if isinstance(part, str):
        return {start + len(part)} if text.startswith(part, start) else set()
    if isinstance(part, list):
        return {end for alternative in part for end in _ends(alternative, text, {start})}
    if part.width is None:
        letter = text[start : start + 1]
        return {start + 1} if letter and _LETTER_ORDER.find(letter) in part.positions else set()
    found = _DIGITS.match(text, start)
    last = start if found is None else found.end()
    return {end for end in range(start + 1, last + 1) if _is_number(text[start:end], part)}


def _is_number(text: str, part: _Range) -> bool:
    return text != "-" and int(text) in part.positions and f"{int(text):0{part.width}}" == text
