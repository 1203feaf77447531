"""A JSONL split into ranges of lines. A range is identified by its offset, so each process reads its own lines.

Lines end as in Python's text files, with \\n, \\r\\n or \\r. A line must fit into memory: a line of over `limit`
characters is returned as None. Bytes that are not UTF-8 become lone surrogates, so that the line can be reported.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, TextIO

from touchfs.core.errors import ChangedError, map_os_errors
from touchfs.core.location import Location
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint


@dataclass(frozen=True, slots=True)
class LineRange:
    """The byte offset of the first line, the number of lines before it, and the number of lines in the range."""

    offset: int
    before: int
    count: int


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a JSONL with this fingerprint and hash."""

    path: str
    fingerprint: Fingerprint
    sha256: str
    limit: int

    def read(self, lines: LineRange) -> Iterator[tuple[int, str | None]]:
        """The stripped lines of a range, numbered from 1 over the whole file; None for a line over the limit.

        Raises ChangedError if the file changed, NotFoundError or SourceError.
        """
        count = 0
        with map_os_errors(self.path, "cannot be read"), _open(self.path) as file:
            self._check(file)
            file.seek(lines.offset)
            text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
            for count, line in enumerate(islice(_lines(text, self.limit), lines.count), 1):
                yield lines.before + count, None if line is None else line.strip()
            self._check(file)
        if count != lines.count:
            raise self._changed()

    def _check(self, file: BinaryIO) -> None:
        if not self.fingerprint.matches(_fingerprint(self.path, file)):
            raise self._changed()

    def _changed(self) -> ChangedError:
        return ChangedError("has changed while it was packed: remove what was packed, and pack again", path=self.path)


def split(path: str, count: int, limit: int) -> tuple[Lines, list[LineRange]]:
    """Split a JSONL into ranges of `count` lines; the last may have fewer. Raises NotFoundError or SourceError."""
    digest = hashlib.sha256()
    starts = []
    offset = total = 0
    with (
        map_os_errors(path, "cannot be read"),
        _open(path) as data,
        # newline="" keeps line ends, so that offsets add up.
        io.TextIOWrapper(data, encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        fingerprint = _fingerprint(path, data)
        begins = True
        for piece, ends in _pieces(file, limit):
            if begins:
                if total % count == 0:
                    starts.append((offset, total))
                total += 1
            stored = piece.encode("utf-8", "surrogateescape")
            digest.update(stored)
            offset += len(stored)
            begins = ends
    ranges = [LineRange(offset, before, min(count, total - before)) for offset, before in starts]
    return Lines(path, fingerprint, digest.hexdigest(), limit), ranges


def _open(path: str) -> BinaryIO:
    return DATA.stream(path) if Location.of(path).is_url else open(path, "rb")


def _fingerprint(path: str, file: BinaryIO) -> Fingerprint:
    return DATA.stat(path).fingerprint if Location.of(path).is_url else Fingerprint.of(os.fstat(file.fileno()))


def _lines(file: TextIO, limit: int) -> Iterator[str | None]:
    """Each line, or None for one of over `limit` characters."""
    line: str | None = ""
    begins = True
    for piece, ends in _pieces(file, limit):
        line = piece if begins else None
        if ends:
            yield line
        begins = ends
    if not begins:
        yield line


def _pieces(file: TextIO, limit: int) -> Iterator[tuple[str, bool]]:
    """Lines with their ends, in several pieces if over the limit; and whether a piece ends its line."""
    size = limit + len("\r\n")
    while piece := file.readline(size):
        # At this size, the line end may have been cut in two.
        yield piece, piece.endswith("\n") or (piece.endswith("\r") and len(piece) < size)
