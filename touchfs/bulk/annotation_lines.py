"""The lines of an import of annotations, to be matched to samples by their keys."""

from __future__ import annotations

import hashlib
import os
import re
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import BinaryIO

from touchfs.containers.touchnet.layout import mmidx
from touchfs.core.errors import FormatError
from touchfs.format.metainfo import parse_metainfo
from touchfs.limits import too_long

KEEP = -1  # in the place of a line: keep what is stored
_DIGEST_SIZE = 16
# JSON has raw line ends only between tokens, where they and the indentation after them have no meaning.
_LINE_END = re.compile(rb"[\r\n][ \t\r\n]*")


class AnnotationLines:
    """Lines in a temporary file. Their offsets and digests, and by key the first line not matched yet, are in memory.

    The file has no name that a kill would leave behind: other processes open it as `path`. Raises FormatError for a
    line that is too long or not a JSON object.
    """

    def __init__(self, file: BinaryIO, lines: Iterable[bytes], limit: int) -> None:
        self.path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        self._starts = array("q", [0])
        self._digests = bytearray()
        self._first: dict[str | None, int] = {}
        self._more: dict[str | None, deque[int]] = {}  # further lines of repeated keys
        for ordinal, ended in enumerate(lines):
            line = ended.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) >= mmidx.LENGTH_LIMIT:
                raise FormatError(f"line {ordinal + 1} is too long for a sample")
            if len(line) > limit:
                raise FormatError(too_long(f"line {ordinal + 1}", limit))
            try:
                key = parse_metainfo(line).key
            except FormatError as error:
                raise FormatError(f"line {ordinal + 1}: {error}") from error
            if key in self._first:
                self._more.setdefault(key, deque()).append(ordinal)
            else:
                self._first[key] = ordinal
            file.write(line)
            self._digests += digest(line)
            self._starts.append(self._starts[-1] + len(line))

        file.flush()

    def digest(self, ordinal: int) -> bytes:
        """The digest of a line."""
        start = ordinal * _DIGEST_SIZE
        return bytes(self._digests[start : start + _DIGEST_SIZE])

    def ranges(self, plan: Sequence[int]) -> tuple[array[int], array[int]]:
        """The offsets and sizes of lines in the file; KEEP stays."""
        starts = self._starts
        return (
            array("q", (KEEP if line == KEEP else starts[line] for line in plan)),
            array("q", (KEEP if line == KEEP else starts[line + 1] - starts[line] for line in plan)),
        )

    def take(self, key: str | None) -> int | None:
        """The first line with a key that is not matched yet, or None. It is matched now."""
        ordinal = self._first.pop(key, None)
        if more := self._more.get(key):
            self._first[key] = more.popleft()
        return ordinal

    @property
    def left(self) -> int:
        """The number of lines not matched to a sample."""
        return len(self._first) + sum(map(len, self._more.values()))

    def first_left(self) -> tuple[int, str | None]:
        """The first line that is not matched, and its key."""
        return min((ordinal, key) for key, ordinal in self._first.items())


def digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=_DIGEST_SIZE).digest()


def one_line(data: bytes) -> bytes:
    """Metainfo on one line, as it is exported."""
    return _LINE_END.sub(b"", data) if b"\n" in data or b"\r" in data else data
