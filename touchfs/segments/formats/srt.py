"""SubRip subtitles, `.srt`: cues with a counter, a line of timing, and lines of text.

    1
    00:00:01,500 --> 00:00:03,000
    Good morning.
    This is a talk.

There is no standard. As players do, this takes a cue without a counter, a point for the comma, text with empty lines
in it, and no empty line between cues. Line breaks in a text stay. Tags (`<i>`) and ASS codes (`{\\an8}`) go.

Libraries were not taken, as they read a whole file into memory, pysubs2 makes a damaged line of timing a part of the
text before it, and srt does so with a cue after no empty line and reads 3.5 seconds as 3.005.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from touchfs.core.extent import Buffer
from touchfs.segments.formats.cues import ARROW, CueText, timing
from touchfs.segments.formats.lines import at_line, lines, shown
from touchfs.segments.segment import Segment

_MARKUP = re.compile(r"</?(?:b|i|u|s|font)(?:\s[^<>]*)?>|\{\\[^{}]*\}", re.IGNORECASE)


def parse_srt(blocks: Iterable[Buffer]) -> Iterator[Segment]:
    """Yield the cues of a file. Raises FormatError."""
    times: tuple[float, float] | None = None
    text = CueText()
    for number, line in lines(blocks):
        if ARROW not in line:
            if times is None and line.strip() and (text.lines or not line.strip().isdecimal()):
                raise at_line(number, f"{shown(line)} is not a subtitle: a counter and a line with {ARROW} come first")
            if times is not None or line.strip():
                text.add(number, line)
            continue
        counter = text.lines.pop() if text.lines and text.lines[-1].strip().isdecimal() else None
        if times is not None:
            yield _segment(times, text)
        elif counter is None and text.lines:
            raise at_line(number, "a line of timing comes after text that belongs to no subtitle")
        times, text = timing(number, line), CueText()
    if times is not None:
        yield _segment(times, text)


def _segment(times: tuple[float, float], text: CueText) -> Segment:
    start, end = times
    shown_lines = (_MARKUP.sub("", line).strip() for line in text.lines)
    return Segment.of({"start": start, "end": end, "text": "\n".join(filter(None, shown_lines))})
