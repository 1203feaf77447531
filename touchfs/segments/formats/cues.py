"""The common parts of SubRip and WebVTT: lines of timing, `00:00:01,500 --> 00:00:03,000`, and markup in texts."""

from __future__ import annotations

import re

from touchfs.segments.formats.lines import TEXT_MAX, at_line, shown

ARROW = "-->"
_TIME = r"(?:([0-9]{1,5}):)?([0-9]{1,2}):([0-9]{1,2})(?:[.,]([0-9]{1,3}))?"
# After the times, SubRip may have coordinates and WebVTT has settings.
_TIMING = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?")


def timing(number: int, line: str) -> tuple[float, float]:
    """Return the start and the end in seconds that a line with an arrow states. Raises FormatError."""
    match = _TIMING.fullmatch(line)
    if not match:
        raise at_line(number, f"{shown(line)} is not a time, such as 00:00:01,500 --> 00:00:03,000")
    return _seconds(*match.groups()[:4]), _seconds(*match.groups()[4:])


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> float:
    milliseconds = ((int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)) * 1000
    return (milliseconds + int((fraction or "").ljust(3, "0"))) / 1000


class CueText:
    """The lines of a cue's text, as far as they are read."""

    __slots__ = ("_size", "lines")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._size = 0

    def add(self, number: int, line: str) -> None:
        """Add a line. Raises FormatError if the text is too long."""
        self._size += len(line) + 1
        if self._size > TEXT_MAX:
            raise at_line(number, f"the text of a segment has over {TEXT_MAX:,} characters")
        self.lines.append(line)
