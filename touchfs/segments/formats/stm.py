"""NIST's STM, `.stm`: an utterance per line.

    recording channel speaker start end [<label,label>] transcript

Lines that begin with `;;` are comments. The transcript IGNORE_TIME_SEGMENT_IN_SCORING stands for none.

Source: NIST, sclite's documentation of its input formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from touchfs.core.extent import Buffer
from touchfs.segments.formats.lines import at_line, fields, seconds
from touchfs.segments.segment import Segment

_NO_TRANSCRIPT = "IGNORE_TIME_SEGMENT_IN_SCORING"
_LABELS = re.compile(r"<([^<>\s]*)>(?:\s+|$)")


def parse_stm(blocks: Iterable[Buffer]) -> Iterator[Segment]:
    """Yield the utterances of a file. Raises FormatError."""
    for number, line in fields(blocks, ";;", 6):
        if len(line) < 5:
            raise at_line(number, f"has {len(line)} fields, not recording, channel, speaker, start, end and transcript")
        recording, channel, speaker, start, end, *rest = line
        segment: dict[str, Any] = {"start": seconds(number, start), "end": seconds(number, end)}
        text = rest[0] if rest else ""
        if match := _LABELS.match(text):
            segment["labels"] = match[1].split(",")
            text = text[match.end() :]
        if text.upper() != _NO_TRANSCRIPT:
            segment["text"] = text
        yield Segment.of(segment | {"speaker": speaker, "recording_id": recording, "channel": channel})
