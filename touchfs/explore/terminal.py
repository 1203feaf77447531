"""A page as lines of a terminal: never wider than it is, and plain where there are no colours.

Texts of data lose what would send a command to the terminal: each passes through `one_line` and is cut to its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.control_characters import one_line, quote_name
from touchfs.explore import page as parts
from touchfs.explore.files import PictureSize
from touchfs.explore.lanes import lanes_of
from touchfs.picture.cells import Colours, bar, braille_wave, columns, half_blocks
from touchfs.picture.palette import NIGHT
from touchfs.picture.shrink import fit, loudest, shrink
from touchfs.picture.spectrogram import ROWS, row_of
from touchfs.picture.width import cell_len, set_cell_size

WIDTH_MAX = 120
_MARGIN = 6
# A recording of a lower peak is not drawn any larger.
_SILENT = 0.001
_WAVE_ROWS, _WAVE_ROWS_OF_MANY, _MANY_CHANNELS = 3, 1, 2
_SPECTROGRAM_ROWS = 10
_IMAGE_ROWS = 20
_THUMBNAIL = 18
_LANES = 4
# A text beside times has at least this much room.
_NARROW = 12
_SEGMENTS = 20
_TEXT_LINES, _JSON_LINES = 12, 24
_MARKS = (500, 1000, 2000, 4000, 8000)
_HISTOGRAM_ROWS = 3
# Letters that share a cell, with accents. Of more, a line ends before it is full.
_LETTERS_OF_CELL = 4


@dataclass(frozen=True, slots=True)
class Terminal:
    """How wide it is, and its colours."""

    width: int
    colours: Colours = Colours.NONE

    @property
    def size(self) -> PictureSize:
        """How large pictures are."""
        inside = self.inside
        return PictureSize(2 * inside, inside, 2 * _IMAGE_ROWS, 2 * _SPECTROGRAM_ROWS)

    @property
    def inside(self) -> int:
        """The cells of a line of a picture, beside its margin."""
        return max(min(self.width, WIDTH_MAX) - _MARGIN - 1, 8)

    def styled(self, text: str, code: str) -> str:
        """A text in a style; control characters in it are escaped."""
        text = one_line(text)
        return text if self.colours is Colours.NONE or not text else f"\x1b[{code}m{text}\x1b[0m"

    def bold(self, text: str) -> str:
        """A title."""
        return self.styled(text, "1")

    def dim(self, text: str) -> str:
        """A text that matters less."""
        return self.styled(text, "2")

    def accent(self, text: str) -> str:
        """A text that stands out."""
        return self.styled(text, "36")

    def alarm(self, text: str) -> str:
        """A problem."""
        return self.styled(text, "31")

    def lines(self, page: parts.Page) -> Iterator[str]:
        """The lines of a page."""
        is_plain = self.colours is Colours.NONE
        return (line.rstrip() if is_plain else line for line in self._page(page))

    def _page(self, page: parts.Page) -> Iterator[str]:
        width = self.width
        place = cut(one_line(page.place), max(width - cell_len(cut(quote_name(page.title), width)) - 3, 0))
        yield self.bold(cut(quote_name(page.title), width)) + (f"   {self.dim(place)}" if place else "")
        for fact in page.facts:
            yield from map(self.dim, wrapped(fact, width))
        for part, following in zip_longest(page.parts, page.parts[1:]):
            yield ""
            if isinstance(part, parts.Recording):
                yield from self._recording(part, following if isinstance(following, parts.ShownSegments) else None)
            else:
                yield from self._part(part)

    def _part(self, part: parts.Part) -> Iterator[str]:
        match part:
            case parts.ShownSegments():
                yield from self._segments(part)
            case parts.Picture():
                yield from self._heading(part.name, part.facts)
                rows, width, _ = part.pixels.shape
                high, wide = min(rows, 2 * _IMAGE_ROWS), min(width, self.inside)
                yield from half_blocks(shrink(part.pixels, high, wide).astype(np.uint8), self.colours)
            case parts.Thumbnails():
                yield from self._thumbnails(part)
            case parts.Map():
                yield from self._heading(part.name, part.facts)
                small = shrink(part.levels, min(len(part.levels), 2 * _SPECTROGRAM_ROWS), self.inside)
                yield from self._map(small)
            case parts.Line():
                yield from self._heading(part.name, part.facts)
                yield from map(self.accent, braille_wave(part.low, part.high, _WAVE_ROWS))
                yield from map(self.dim, wrapped(part.numbers, self.width)[:3])
            case parts.Text():
                yield from self._text(part)
            case parts.Problem():
                yield from map(self.alarm, wrapped(f"{quote_name(part.name)}: {part.reason}", self.width))
            case parts.FileList():
                sizes = [f"{quote_name(name)} {'?' if size is None else f'{size:,}'}" for name, size in part.files]
                yield from map(
                    self.dim, flowing(["Files", *sizes, *([f"and {part.more:,} more"] * (part.more > 0))], self.width)
                )
            case parts.HistogramCard():
                yield from self._histogram(part)
            case parts.Bars():
                yield from self._bars(part)
            case parts.TextTable():
                yield from self._rows(part)

    def _heading(self, name: str, facts: str) -> Iterator[str]:
        name = cut(quote_name(name), self.width)
        if (room := self.width - cell_len(name) - 2) < _NARROW:
            yield self.bold(name)
            yield from map(self.dim, wrapped(facts, self.width))
        else:
            first, *rest = wrapped(facts, room)
            yield f"{self.bold(name)}  {self.dim(first)}"
            yield from map(self.dim, rest)

    def _recording(self, part: parts.Recording, segments: parts.ShownSegments | None) -> Iterator[str]:
        yield from self._heading(part.name, " · ".join(filter(None, (part.facts, part.remark))))
        sketch, margin = part.sketch, " " * _MARGIN
        rows = _WAVE_ROWS if len(sketch.low) <= _MANY_CHANNELS else _WAVE_ROWS_OF_MANY
        scale = 1 / max(sketch.peak, _SILENT)
        for low, high in zip(sketch.low * scale, sketch.high * scale, strict=True):
            yield from (margin + self.accent(line) for line in braille_wave(low, high, rows))
        levels = loudest(sketch.levels(), 2 * _SPECTROGRAM_ROWS, self.inside)
        marks = {}
        for frequency in _MARKS:
            if frequency < part.rate / 2:
                place = _SPECTROGRAM_ROWS - 1 - row_of(frequency, part.rate) * _SPECTROGRAM_ROWS // ROWS
                marks[place] = f"{frequency / 1000:g}k"
        for number, line in enumerate(self._map(levels)):
            yield self.dim(marks.get(number, "").rjust(_MARGIN - 1)) + " " + line
        if segments is not None:
            yield from self._lanes([each for each in segments.listed if each.start < part.drawn], part.drawn)
        yield margin + self.dim(self._ruler(part.drawn))

    def _thumbnails(self, part: parts.Thumbnails) -> Iterator[str]:
        yield from self._heading(part.title, part.words)
        shown = part.images[: max((self.width + 2) // (_THUMBNAIL + 2), 1)]
        pictures = [self._thumbnail(pixels) for _, pixels in shown]
        for row in range(max(map(len, pictures), default=0)):
            yield "  ".join(picture[row] if row < len(picture) else " " * _THUMBNAIL for picture in pictures)
        names = (set_cell_size(cut(quote_name(name), _THUMBNAIL), _THUMBNAIL) for name, _ in shown)
        yield self.dim(cut("  ".join(names).rstrip(), self.width))

    def _thumbnail(self, pixels: NDArray[np.uint8]) -> list[str]:
        """The lines of a small image, each of `_THUMBNAIL` cells."""
        width, height = fit(pixels.shape[1], pixels.shape[0], _THUMBNAIL, _THUMBNAIL)
        small = shrink(pixels, height, width).astype(np.uint8)
        return [line + " " * (_THUMBNAIL - width) for line in half_blocks(small, self.colours)]

    def _map(self, levels: NDArray[Any]) -> list[str]:
        whole = levels.astype(np.uint8)
        is_plain = self.colours is Colours.NONE
        return half_blocks(np.repeat(whole[..., None], 3, axis=2) if is_plain else NIGHT[whole], self.colours)

    def _ruler(self, seconds: float) -> str:
        middle, end = f"{seconds / 2:.2f}", f"{seconds:.2f} s"
        half = self.inside // 2
        return ("0".ljust(half - len(middle) // 2) + middle).ljust(self.inside - len(end)) + end

    def _lanes(self, segments: Sequence[parts.ShownSegment], seconds: float) -> Iterator[str]:
        for lane in lanes_of(segments)[:_LANES]:
            line, at = "", 0
            for segment in lane:
                first = min(int(segment.start / max(seconds, 1e-9) * self.inside), self.inside)
                last = min(max(int(segment.end / max(seconds, 1e-9) * self.inside), first + 1), self.inside)
                if first >= at and last > first:
                    text = "▏" + cut(one_line(segment.text), last - first - 1)
                    line += " " * (first - at) + self._span(set_cell_size(text, last - first))
                    at = last
            yield " " * _MARGIN + line

    def _span(self, text: str) -> str:
        return self.styled(text, "38;5;195;48;5;23")

    def _segments(self, part: parts.ShownSegments) -> Iterator[str]:
        digits = len(str(part.count - 1)) if part.count else 1
        for segment in part.listed[:_SEGMENTS]:
            times = f"{segment.start:.3f} – {segment.end:.3f}"
            speaker = f"{one_line(segment.speaker)}: " if segment.speaker else ""
            number, text = f"{segment.number:>{max(digits, 4)}}", speaker + one_line(segment.text)
            if (room := self.width - len(number) - len(times) - 4) >= _NARROW:
                yield f"{self.dim(number)}  {times}  {cut(text, room)}".rstrip()
            else:
                yield self.dim(cut(f"{number}  {times}", self.width))
                yield cut(text, self.width)
        if (more := part.count - min(len(part.listed), _SEGMENTS)) > 0:
            yield self.dim(cut(f"      and {more:,} more segments", self.width))

    def _text(self, part: parts.Text) -> Iterator[str]:
        yield from self._heading(part.name, part.remark)
        most = _JSON_LINES if "json" in part.name else _TEXT_LINES
        longest = (most + 1) * self.width  # no more of a line is seen
        lines = [
            line for text in part.text.splitlines()[: most + 1] for line in wrapped(text[:longest], self.width - 2)
        ]
        yield from (f"  {line}" for line in lines[:most])
        if len(lines) > most or len(part.text.splitlines()) > most + 1:
            yield self.dim("  …")

    def _histogram(self, part: parts.HistogramCard) -> Iterator[str]:
        yield from self._heading(part.title, part.words)
        shares = np.array(part.counts, np.float64) / max(part.counts, default=1)
        yield from (self.accent(line) for line in columns(shares[: self.width], _HISTOGRAM_ROWS))
        first, last = part.axis
        yield self.dim(cut(first + last.rjust(max(len(part.counts) - cell_len(first), cell_len(last) + 1)), self.width))

    def _bars(self, part: parts.Bars) -> Iterator[str]:
        yield from self._heading(part.title, part.words)
        names = [cut(quote_name(name), max(self.width // 3, 8)) for name, _, _ in part.values]
        wide = max(map(cell_len, names), default=0)
        most = max((count for _, count, _ in part.values), default=1) or 1
        for name, (_, count, share) in zip(names, part.values, strict=True):
            share = cut(share, self.width - wide - 5)
            room = max(min(self.width - wide - cell_len(share) - 4, 40), 1)
            shown = self.accent(set_cell_size(bar(count / most, room), room))
            yield f"{set_cell_size(name, wide)}  {shown}  {self.dim(share)}"

    def _rows(self, part: parts.TextTable) -> Iterator[str]:
        yield self.bold(cut(part.title, self.width))
        table = [[*(cut(one_line(each), self.width // 3) for each in row[:-1]), one_line(row[-1])] for row in part.rows]
        widths = [max(map(cell_len, column)) for column in zip(part.names, *table, strict=True)] if table else []
        for number, row in enumerate([[*part.names], *table] if table else ()):
            line = "  ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True))
            yield cut(line.rstrip(), self.width) if number else self.dim(cut(line.rstrip(), self.width))


def cut(text: str, width: int) -> str:
    """A text of at most so many cells; one that is longer ends in "…"."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, at most so wide: cut between words, or in them where they are wider."""
    text = one_line(text.rstrip())
    lines, line = list[str](), text[: min(len(text) - len(text.lstrip(" ")), width // 2)]
    for word in text.split():
        joined = f"{line} {word}" if line.strip() else line + word
        while len(joined) > _LETTERS_OF_CELL * width or cell_len(joined) > width:
            if line.strip():
                lines.append(line)
                joined = word
            else:
                lines.append(set_cell_size(joined[: _LETTERS_OF_CELL * width], width).rstrip())
                joined = joined[len(lines[-1]) :]
            line = ""
        line = joined
    return [*lines, line] if line or not lines else lines


def flowing(words: Iterable[str], width: int) -> list[str]:
    """Words in lines, three spaces between them."""
    lines, line = list[str](), ""
    for word in (cut(one_line(each), width) for each in words):
        joined = f"{line}   {word}" if line else word
        if line and cell_len(joined) > width:
            lines.append(line)
            joined = word
        line = joined
    return [*lines, line] if line else lines
