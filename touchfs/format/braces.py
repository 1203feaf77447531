"""Names with braces, as in WebDataset and bash: `train-{000..099}.tar`, `{train,dev}.tar`, `{a,b{1..3}}`.

    {000..099}      numbers, as wide as written if one begins with 0; downwards if the first is larger
    {0..10..2}      each second of them
    {a..f}          letters
    {train,dev}     texts, which may have braces themselves, or be empty
    _OP_0..9_CL_    as NeMo writes `{0..9}`, because braces mean something else to its configurations

All else is literal: braces that do not match, and `{x}`. There are no escapes. The order is that of bash.

The package braceexpand, which WebDataset uses, makes the names. It makes all of each brace before it returns the first,
so `{0..9999999999}` would take all memory, and it refuses braces that do not match. So names are counted first, and it
sees only the braces that were counted: all others are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import prod

from braceexpand import alphabet, braceexpand

from touchfs.core.errors import UsageError

NAMES_MAX = 1_000_000
_DEPTH_MAX = 32
_CLOSING = {"{": "}", "_OP_": "_CL_"}
_MARKS = re.compile(r"(\{|\}|_OP_|_CL_|,)")
# What names share is cut at the end of a word, so that `train` and `test` are not `t{rain,est}`.
_NAME_END, _NAME_START = re.compile(r"[0-9A-Za-z]+$"), re.compile(r"^[0-9A-Za-z]+")
_SPECIAL = re.compile(r"[\\{}]")
# Longer numbers are more than names can be anyway, and Python refuses those of thousands of digits.
_NUMBERS = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.-?([0-9]{1,18}))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?([0-9]{1,18}))?")


@dataclass(frozen=True, slots=True)
class BracePattern:
    """The names that a text with braces stands for. `prefix` is the text before the first brace."""

    prefix: str
    count: int
    _escaped: str = field(repr=False)

    def __iter__(self) -> Iterator[str]:
        return iter(braceexpand(self._escaped))


def parse_braces(text: str) -> BracePattern | None:
    """Return the names that a text stands for; None if it has no braces that stand for any.

    Raises UsageError for more than `NAMES_MAX` names, and for braces nested more than 32 deep.
    """
    tokens = _MARKS.split(text)
    escaped = [_SPECIAL.sub(r"\\\g<0>", token) for token in tokens]
    first = len(tokens)
    # Of each brace that is not closed yet: its position, and how many names each of its alternatives stands for so far.
    stack = [(0, [1])]
    for at, token in enumerate(tokens):
        if token in _CLOSING:
            if len(stack) > _DEPTH_MAX:
                raise UsageError(f"these braces are nested more than {_DEPTH_MAX} deep", path=text)
            stack.append((at, [1]))
        elif token == ",":
            stack[-1][1].append(1)
        elif token and token == _CLOSING.get(tokens[stack[-1][0]]):
            start, alternatives = stack.pop()
            is_list = len(alternatives) > 1
            count = sum(alternatives) if is_list else _range_length("".join(tokens[start + 1 : at]))
            if count:
                first = min(first, start)
                escaped[start], escaped[at] = "{", "}"
            stack[-1][1][-1] *= count or alternatives[0]
    if first == len(tokens):
        return None
    if (count := prod(each for _, alternatives in stack for each in alternatives)) > NAMES_MAX:
        raise UsageError(f"these braces stand for more than {NAMES_MAX:,} names", path=text)
    return BracePattern("".join(tokens[:first]), count, "".join(escaped))


def join_braces(names: Sequence[str]) -> str | None:
    """The text that stands for these names, in their order; None if there is none, as for names with commas.

    Numbers that follow each other become a range: so `train-{000..099}.tar` is what its members are joined to.
    """
    prefix = _NAME_END.sub("", _MARKS.split(_shared_start(names))[0])
    rests = [name[len(prefix) :] for name in names]
    shared = _shared_start([rest[::-1] for rest in rests])[::-1]
    suffix = _NAME_START.sub("", _MARKS.split(shared)[-1])
    stems = [rest.removesuffix(suffix) for rest in rests]
    expected = [each for name in names for each in parse_braces(name) or [name]]
    for parts in (_ranges(stems), stems):
        middle = parts[0] if len(parts) == 1 and parts is not stems else f"{{{','.join(parts)}}}"
        text = f"{prefix}{middle}{suffix}"
        if (pattern := parse_braces(text)) is not None and list(pattern) == expected:
            return text
    return None


def _shared_start(names: Sequence[str]) -> str:
    least, most = min(names), max(names)  # what these share, those between them have, too
    same = takewhile(lambda pair: pair[0] == pair[1], zip(least, most, strict=False))
    return least[: sum(1 for _ in same)]


def _ranges(stems: Sequence[str]) -> list[str]:
    """The stems, of which numbers that follow each other in one width are a range."""
    runs = list[list[str]]()
    for stem in stems:
        last = runs[-1][-1] if runs else ""
        is_next = stem.isdecimal() and last.isdecimal() and int(stem) == int(last) + 1
        if is_next and (len(stem) == len(last) or "0" not in (stem[0], runs[-1][0][0])):
            runs[-1].append(stem)
        else:
            runs.append([stem])
    return [part for run in runs for part in ([f"{{{run[0]}..{run[-1]}}}"] if len(run) > 2 else run)]


def _range_length(text: str) -> int:
    """How many numbers or letters a range has; 0 for another text."""
    if found := _NUMBERS.fullmatch(text):
        ends = int(found[1]), int(found[2])
    elif found := _LETTERS.fullmatch(text):
        ends = alphabet.index(found[1]), alphabet.index(found[2])
    else:
        return 0
    return abs(ends[1] - ends[0]) // (int(found[3] or 1) or 1) + 1
