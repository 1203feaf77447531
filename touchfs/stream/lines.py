"""Streams of JSON lines: `NAME.jsonl`, `NAME.jsonl.gz`, `pipe:COMMAND`.

Each line that is not blank is a sample. A cursor is the number of samples so far, and the last line (`LinePosition`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from touchfs.containers.lines.layout import value_span
from touchfs.containers.lines.reader import key_of, parse_line
from touchfs.core.extent import Memory
from touchfs.dataset.sample import MadeSample, Sample
from touchfs.dataset.sample_file import MadeFile, no_path
from touchfs.source.lines import START, LinePosition, lines_after, stream_identity
from touchfs.stream.base import VIEW, Cursor, StreamItem, cursor_numbers
from touchfs.stream.problems import ProblemLog, check_first_line

# A longer line is not blank, or becomes a sample that is not JSON, which `ProblemLog` reports.
_BLANK_MAX = 5


class LineStream:
    """The samples of one file of JSON lines, with lines of at most `limit` bytes."""

    def __init__(self, path: str, name: str, limit: int) -> None:
        self.path = path
        self.name = name
        self._limit = limit

    def sizes(self) -> list[tuple[str, int | None]]:
        return [stream_identity(self.path)]

    def samples(self, cursor: Cursor) -> Iterator[StreamItem]:
        ordinal, *last = cursor_numbers(cursor, 1 + len(START))
        problems = ProblemLog(self.path)
        for behind, line in lines_after(self.path, LinePosition(*last), self._limit):
            offset = behind.offset - behind.size
            if not is_blank(line, offset):
                if not ordinal:
                    check_first_line(self.path, line, offset)
                ordinal += 1
                yield [ordinal, *behind], partial(self._sample, ordinal - 1, offset, line, problems)
        problems.close()

    def _sample(self, ordinal: int, offset: int, line: bytes, problems: ProblemLog) -> Sample:
        parsed, problem = parse_line(line, offset)
        if problem:
            problems.add(problem)
        file = MadeFile("json", no_path, partial(Memory, line))
        return MadeSample(VIEW, self.name, ordinal, 0, key_of(parsed) or f"{ordinal:08d}", {"json": file})


def first_line(path: str, limit: int) -> tuple[bytes, int]:
    """The first line of a file that is not blank, and its offset; b"" if it has none."""
    for behind, line in lines_after(path, limit=limit):
        offset = behind.offset - behind.size
        if not is_blank(line, offset):
            return line, offset
    return b"", 0


def is_blank(line: bytes, offset: int) -> bool:
    """Return True if a line at this offset of its file has only whitespace (or a byte order mark at the start)."""
    return len(line) <= _BLANK_MAX and not value_span(line, offset)[1]
