"""Pictures made of characters: braille dots, half blocks in colour, bars of eighths.

Escape sequences are ours alone: no text of data comes into this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

_BRAILLE = 0x2800
# The bits of the dots of a cell, from the top, of its left and its right column.
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_SHADES = " ░▒▓█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_COLUMNS = " ▁▂▃▄▅▆▇█"
_RESET = "\x1b[0m"
_UPPER = "▀"


class Colours(Enum):
    """The colours of a terminal."""

    NONE = "none"
    PALETTE = "256"
    TRUE = "24 bits"


def braille_wave(low: NDArray[np.float32], high: NDArray[np.float32], rows: int) -> list[str]:
    """Lines of braille: a waveform of `rows` lines, of which each cell has two columns and four rows of dots."""
    columns, height = len(low), 4 * rows
    top = np.clip(np.floor((1 - high) * height / 2), 0, height - 1).astype(int)
    bottom = np.clip(np.ceil((1 - low) * height / 2) - 1, 0, height - 1).astype(int)
    places = np.arange(height)[:, None]
    dots = (places >= np.minimum(top, bottom)) & (places <= np.maximum(top, bottom))
    dots = np.pad(dots, ((0, 0), (0, columns % 2)))
    cells = (dots.reshape(rows, 4, -1, 2) * _DOTS[None, :, None, :]).sum(axis=(1, 3))
    return ["".join(chr(_BRAILLE + each) for each in line) for line in cells.tolist()]


def half_blocks(pixels: NDArray[np.uint8], colours: Colours) -> list[str]:
    """Lines with two rows of pixels each, shape (height, width, 3); without colours, shades of how bright they are."""
    pixels = np.pad(pixels, ((0, len(pixels) % 2), (0, 0), (0, 0)), mode="edge")
    if colours is Colours.NONE:
        bright = pixels.mean(axis=2).reshape(len(pixels) // 2, 2, -1).mean(axis=1)
        return ["".join(_SHADES[int(each)] for each in line) for line in (bright * len(_SHADES) / 256).tolist()]
    return ["".join(_line(upper, lower, colours)) for upper, lower in zip(pixels[::2], pixels[1::2], strict=True)]


def _line(upper: NDArray[np.uint8], lower: NDArray[np.uint8], colours: Colours) -> Iterator[str]:
    code = _true if colours is Colours.TRUE else _of_palette
    cells = ((f"\x1b[38;{code(top)};48;{code(low)}m") for top, low in zip(upper.tolist(), lower.tolist(), strict=True))
    for sequence, same in groupby(cells):
        yield sequence + _UPPER * sum(1 for _ in same)
    yield _RESET


def _true(colour: list[int]) -> str:
    return "2;" + ";".join(map(str, colour))


def _of_palette(colour: list[int]) -> str:
    """The nearest colour among the 6 x 6 x 6 of a terminal with 256, or its greys."""
    red, green, blue = colour
    if max(colour) - min(colour) < 12:
        grey = round((sum(colour) / 3 - 8) / 10)
        return f"5;{16 if grey < 0 else 231 if grey > 23 else 232 + grey}"
    steps = [0 if each < 48 else 1 if each < 115 else (each - 35) // 40 for each in (red, green, blue)]
    return f"5;{16 + 36 * steps[0] + 6 * steps[1] + steps[2]}"


def bar(share: float, width: int) -> str:
    """A bar of at most `width` cells, exact to an eighth; a share above 0 is seen."""
    eighths = max(round(min(share, 1.0) * width * 8), share > 0)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def columns(shares: NDArray[np.float64], rows: int = 1) -> list[str]:
    """Lines of a histogram, a cell wide for each share of the highest; a share above 0 is seen."""
    eighths = np.maximum(np.rint(shares * rows * 8), shares > 0).astype(int)
    return [
        "".join(_COLUMNS[each] for each in np.clip(eighths - 8 * row, 0, 8).tolist()) for row in reversed(range(rows))
    ]
