"""NIST's RTTM, `.rttm`: a turn of a speaker per line, as diarization writes it.

    SPEAKER recording channel start duration <NA> <NA> speaker <NA> <NA>

Lines that begin with `;;` are comments. Of the other types, which describe words and what is between them, none is a
segment.

Source: NIST, RT-09 evaluation plan, appendix A.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from touchfs.core.extent import Buffer
from touchfs.segments.formats.lines import at_line, fields, seconds, shown
from touchfs.segments.segment import Segment

_ABSENT = "<NA>"
_OTHER_TYPES = frozenset(
    {
        *(
            "NOSCORE",
            "NO_RT_METADATA",
            "SEGMENT",
            "LEXEME",
            "NON-LEX",
            "NON-SPEECH",
            "FILLER",
            "EDIT",
            "IP",
            "SU",
            "CB",
        ),
        *("A/P", "SPKR-INFO"),
    }
)


def parse_rttm(blocks: Iterable[Buffer]) -> Iterator[Segment]:
    """Yield the turns of a file. Raises FormatError."""
    for number, line in fields(blocks, ";;", 11):
        if line[0] in _OTHER_TYPES:
            continue
        if line[0] != "SPEAKER":
            raise at_line(number, f"{shown(line[0])} is no type of RTTM")
        if len(line) < 8:
            raise at_line(number, f"has {len(line)} fields, and the eighth is the speaker")
        _, recording, channel, start, duration, text, _, speaker = line[:8]
        segment: dict[str, Any] = {"start": seconds(number, start), "duration": seconds(number, duration)}
        values = {"text": text, "speaker": speaker, "recording_id": recording, "channel": channel}
        yield Segment.of(segment | {name: value for name, value in values.items() if value != _ABSENT})
