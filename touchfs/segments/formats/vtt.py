"""WebVTT subtitles, `.vtt`: after the line WEBVTT, blocks between empty lines.

    WEBVTT

    greeting
    00:01.500 --> 00:03.000 align:start
    <v Ann>Good <i>morning</i>.

A line with an arrow begins a cue. If there is one line of the block before it, that is its identifier, `id`. Blocks
without an arrow are notes, styles and regions. Markup goes, character references are resolved, and the voice of a cue
is its speaker if it has only one. Line breaks stay.

webvtt-py was not taken, as it reads a whole file into memory, leaves out a cue with a damaged line of timing, and does
not resolve character references.
Source: W3C, WebVTT: The Web Video Text Tracks Format, 4.1 and 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape

from touchfs.core.extent import Buffer
from touchfs.segments.formats.cues import ARROW, CueText, timing
from touchfs.segments.formats.lines import at_line, lines
from touchfs.segments.segment import Segment

_TAG = re.compile(r"<[^<>]*>")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?[ \t]([^<>]*)>")
_REFERENCE = re.compile(r"&#?[0-9A-Za-z]{1,31};")


def parse_vtt(blocks: Iterable[Buffer]) -> Iterator[Segment]:
    """Yield the cues of a file. Raises FormatError."""
    numbered = lines(blocks)
    number, first = next(numbered, (1, ""))
    if first.split(None, 1)[:1] != ["WEBVTT"]:
        raise at_line(number, "is not WEBVTT")
    cue: dict[str, object] | None = None
    text = CueText()
    block = [first, first]  # the lines before an arrow, at most two: the header has no identifier
    for number, line in numbered:
        if not line:
            if cue is not None:
                yield _segment(cue, text)
            cue, block = None, []
        elif ARROW in line:
            if cue is not None:
                yield _segment(cue, text)
            start, end = timing(number, line)
            cue, text = {"start": start, "end": end}, CueText()
            if len(block) == 1 and block[0].strip():
                cue["id"] = block[0].strip()
            block = []
        elif cue is not None:
            text.add(number, line)
        elif len(block) < 2:
            block.append(line)
    if cue is not None:
        yield _segment(cue, text)


def _segment(cue: dict[str, object], text: CueText) -> Segment:
    written = "\n".join(text.lines)
    voices = {_resolved(voice) for voice in _VOICE.findall(written)}
    if len(voices) == 1:
        cue["speaker"] = voices.pop()
    return Segment.of(cue | {"text": _resolved(_TAG.sub("", written))})


def _resolved(text: str) -> str:
    """A text with the characters that its references stand for."""
    return _REFERENCE.sub(lambda match: unescape(match[0]), text).strip()
