"""How many cells of a terminal a text takes."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_ZERO = ("Mn", "Me", "Cf")


@lru_cache(1 << 12)
def _cells(character: str) -> int:
    if unicodedata.category(character) in _ZERO:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cell_len(text: str) -> int:
    """The cells of a text: two for a character of Chinese, none for one that is put on another one."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def set_cell_size(text: str, size: int) -> str:
    """A text of exactly so many cells: cut, or with spaces after it."""
    taken, end = 0, 0
    for character in text:
        cells = _cells(character)
        if taken + cells > size:
            break
        taken, end = taken + cells, end + 1
    return text[:end] + " " * (size - taken)
