"""A JSONL cut into parts of lines. A part is known by where it begins: whoever needs its lines reads them.

Lines end as in Python's text files, on \\n, \\r\\n or \\r. A line must fit into memory: one of over `limit` characters
is None. Bytes that are not UTF-8 come as lone surrogates, so that it can be said which line has them.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TextIO

from touchfs.errors import ChangedError, NotFoundError, SourceError
from touchfs.source.local import FileIdentity


@dataclass(frozen=True, slots=True)
class LineRange:
    """Where its lines begin, how many come before them, how many they are."""

    offset: int
    before: int
    count: int


@dataclass(frozen=True, slots=True)
class Lines:
    path: str
    identity: FileIdentity
    sha256: str
    limit: int

    def read(self, part: LineRange) -> Iterator[tuple[int, str | None]]:
        """Stripped, and numbered from 1 over the whole file. None stands for a line over the limit."""
        count = 0
        try:
            with open(self.path, "rb") as file:
                self._check(file.fileno())
                file.seek(part.offset)
                text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
                for count, line in enumerate(islice(_lines(text, self.limit), part.count), 1):
                    yield part.before + count, None if line is None else line.strip()
                self._check(file.fileno())
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if count != part.count:
            raise self._changed()

    def _check(self, descriptor: int) -> None:
        if not self.identity.matches(os.fstat(descriptor)):
            raise self._changed()

    def _changed(self) -> ChangedError:
        return ChangedError("has changed while it was packed: remove what was packed, and pack again", path=self.path)


def split(path: str, count: int, limit: int) -> tuple[Lines, list[LineRange]]:
    """Into parts of `count` lines, the last of which may have fewer."""
    digest = hashlib.sha256()
    starts = []
    offset = total = 0
    try:
        # newline="" keeps line ends, so that offsets add up.
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            identity = FileIdentity.of(os.fstat(file.fileno()))
            begins = True
            for piece, ends in _pieces(file, limit):
                if begins:
                    if total % count == 0:
                        starts.append((offset, total))
                    total += 1
                data = piece.encode("utf-8", "surrogateescape")
                digest.update(data)
                offset += len(data)
                begins = ends
    except OSError as error:
        raise _unreadable(path, error) from error
    parts = [LineRange(offset, before, min(count, total - before)) for offset, before in starts]
    return Lines(path, identity, digest.hexdigest(), limit), parts


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
    """Lines with their ends, those over the limit in several pieces. Also whether a piece ends its line."""
    size = limit + len("\r\n")
    while piece := file.readline(size):
        # The line end after so many characters may have been cut in two.
        yield piece, piece.endswith("\n") or (piece.endswith("\r") and len(piece) < size)


def _unreadable(path: str, error: OSError) -> NotFoundError | SourceError:
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such file", path=path)
    return SourceError(f"cannot be read: {error.strerror}", path=path)
