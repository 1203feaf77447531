"""Audacity's labels, a `.txt` with tabs: start, end and label.

    1.500000	3.000000	Good morning.

A `.txt` beside a recording is mostly its transcript. It is a file of labels if its first line with a character is two
decimal numbers with a fraction and a tab between them, and a tab or nothing after them; then every line must be one. A
line that begins with a backslash has the frequencies of the label before, and is left out. A label at a point is a
segment without samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from touchfs.core.extent import Buffer
from touchfs.segments.formats.lines import at_line, lines, shown
from touchfs.segments.segment import Segment

# Some versions write the comma of the user's language.
_TIME = r"([0-9]{1,9}[.,][0-9]{1,18})"
_LABEL = re.compile(rf"{_TIME}\t{_TIME}(?:\t(.*))?", re.DOTALL)


def parse_audacity(blocks: Iterable[Buffer]) -> Iterator[Segment] | None:
    """Return the labels of a file; None if it has none, but some other text. The iterator raises FormatError."""
    numbered = lines(blocks)
    for number, line in numbered:
        if line.strip():
            return _labels(number, line, numbered) if _LABEL.fullmatch(line) else None
    return None


def _labels(number: int, line: str, rest: Iterator[tuple[int, str]]) -> Iterator[Segment]:
    yield _segment(number, line)
    for number, line in rest:
        if line.strip() and not line.startswith("\\"):
            yield _segment(number, line)


def _segment(number: int, line: str) -> Segment:
    match = _LABEL.fullmatch(line)
    if not match:
        raise at_line(number, f"{shown(line)} is not a label: start, tab, end, tab, text")
    start, end = (float(time.replace(",", ".")) for time in match.groups()[:2])
    return Segment.of({"start": start, "end": end, "text": (match[3] or "").strip()})
