"""NIST's CTM, `.ctm`: a word per line.

    recording channel start duration word [confidence]

Lines that begin with `;;` are comments. The marks of alternatives (`* * <ALT_BEGIN>`) have no times and are left out,
so all alternatives are segments.

Source: NIST, sclite's documentation of its input formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from touchfs.core.extent import Buffer
from touchfs.segments.formats.lines import at_line, fields, seconds
from touchfs.segments.segment import Segment

_NO_TIME = "*"


def parse_ctm(blocks: Iterable[Buffer]) -> Iterator[Segment]:
    """Yield the words of a file. Raises FormatError."""
    for number, line in fields(blocks, ";;", 7):
        if len(line) < 5:
            raise at_line(number, f"has {len(line)} fields, not recording, channel, start, duration and word")
        recording, channel, start, duration, word = line[:5]
        if start == duration == _NO_TIME:
            continue
        segment: dict[str, Any] = {"start": seconds(number, start), "duration": seconds(number, duration), "text": word}
        if len(line) > 5 and line[5] != "NA":
            segment["confidence"] = seconds(number, line[5])
        yield Segment.of(segment | {"recording_id": recording, "channel": channel})
