"""Segments in a file beside a recording, such as `talk.srt` beside `talk.flac`. The table is in the docstring of
`touchfs.segments`.

Some formats describe several recordings in one file. If such a file names only one, it is the one beside, whatever its
name. Otherwise only the lines that name the recording's key count, or the last component of the key.
"""

from __future__ import annotations

import importlib
import marshal
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.segments.segment import SEGMENTS_MAX, Segment, Segments

# The limit for all strings of a recording's segments together.
CHARACTERS_MAX = 2**26

Parser = Callable[[Iterable[Buffer]], Iterator[Segment] | None]

# The format of the files with each extension in lower case, in the order in which they are tried. The extension is the
# name of the rule.
FILE_RULES = {
    "srt": "srt",
    "vtt": "vtt",
    "textgrid": "textgrid",
    "ctm": "ctm",
    "stm": "stm",
    "rttm": "rttm",
    "eaf": "eaf",
    "txt": "audacity",
}


def parse(extension: str, blocks: Iterable[Buffer], key: str = "") -> Segments | None:
    """Return the segments of the recording `key` in the file beside it, from the file's bytes in blocks of any size.

    `extension` has no dot. Returns None if the file has no segments, or is of no format with segments. Raises
    FormatError, with the line where the format has lines, also if there are more than `SEGMENTS_MAX` segments or
    `CHARACTERS_MAX` characters in them.
    """
    rule = extension.lower()
    segments = _parser(FILE_RULES[rule])(blocks) if rule in FILE_RULES else None
    if segments is None:
        return None
    found = _of_recording(segments, key)
    if found.is_full:
        limits = f"{SEGMENTS_MAX:,} segments or {CHARACTERS_MAX:,} characters"
        raise FormatError(f"{rule} has more than {limits} for one recording: split it")
    return Segments(rule, found.segments) if found.segments else None


def _parser(name: str) -> Parser:
    """The function that parses files of a format. Its module is imported when the first such file is read: most
    commands need the names of the rules alone, and all formats together take 8 ms.
    """
    parser: Parser = getattr(importlib.import_module(f"touchfs.segments.formats.{name}"), f"parse_{name}")
    return parser


class PackedSegments(Sequence[Segment]):
    """Segments that `Segment.of` makes of their fields, which are strings and numbers. Each access makes a new object:
    a day of speech has 250,000 words, and as objects each takes 500 bytes.

    The packed bytes never leave this process.
    """

    __slots__ = ("_ends", "_packed")

    def __init__(self) -> None:
        self._packed = bytearray()
        self._ends = array("Q", [0])

    def append(self, segment: Segment) -> None:
        """Add a segment."""
        self._packed += marshal.dumps(segment.fields)
        self._ends.append(len(self._packed))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> Segment: ...

    @overload
    def __getitem__(self, place: slice) -> list[Segment]: ...

    def __getitem__(self, place: int | slice) -> Segment | list[Segment]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(f"segment {place} of {len(self)}")
        place %= len(self)
        return Segment.of(marshal.loads(self._packed[self._ends[place] : self._ends[place + 1]]))


class _Collection:
    """Segments that are held in memory. It is full with more than `SEGMENTS_MAX` segments or `CHARACTERS_MAX`."""

    __slots__ = ("_characters", "segments")

    def __init__(self) -> None:
        self.segments = PackedSegments()
        self._characters = 0

    @property
    def is_full(self) -> bool:
        return len(self.segments) > SEGMENTS_MAX or self._characters > CHARACTERS_MAX

    def add(self, segment: Segment) -> None:
        if not self.is_full:
            self.segments.append(segment)
            self._characters += sum(len(value) for value in segment.fields.values() if isinstance(value, str))


def _of_recording(segments: Iterator[Segment], key: str) -> _Collection:
    """The segments of one recording: those that name it or none, or else all, if they name the same other one."""
    names = {None, key, key.rpartition("/")[2]}
    found, others = _Collection(), _Collection()
    first: str | None = None
    is_only = True
    for segment in segments:
        recording = segment.recording
        first = recording if first is None else first
        is_only = is_only and recording == first
        if recording in names:
            found.add(segment)
        elif is_only:
            others.add(segment)
        if found.is_full:
            break
    return others if is_only and others.segments else found
