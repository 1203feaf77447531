"""The lines of a file, of a gzip file (`.gz`), or of the output of a command (`pipe:COMMAND`), in order.

Reading can continue after any line: a plain file seeks there, other streams are read again up to there, unparsed. The
line's CRC-32 verifies that it is unchanged, so a different file, or a command with different output, is an error.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, cast

from touchfs.core.errors import ChangedError, FormatError, SourceError, os_error
from touchfs.limits import LIMITS, too_long
from touchfs.source.data import DATA
from touchfs.source.decompressed import decompressed_stream

PIPE = "pipe:"
_LINE_MAX = 1 << 30  # longest line in states, which may have been saved with another limit
_BLOCK = 1 << 20


class LinePosition(NamedTuple):
    """A position after a line: the line's end offset in bytes, its size and its CRC-32. `START` has an empty line."""

    offset: int = 0
    size: int = 0
    crc: int = 0


START = LinePosition()


def lines_after(
    path: str, position: LinePosition = START, limit: int = LIMITS.json
) -> Iterator[tuple[LinePosition, bytes]]:
    """Yield each line after `position`, with its line feed, and the position after it.

    Raises FormatError for a line of over `limit` bytes: a line must fit into memory, and a small .gz may have one of
    any size. Raises ChangedError if another line ends at `position`, and NotFoundError or SourceError.
    """
    with open_stream(path) as file:
        _skip_to(file, position, path, limit)
        offset = position.offset
        while line := file.readline(limit + 1):
            if len(line) > limit:
                raise FormatError(too_long("a line", limit), path=path, offset=offset)
            offset += len(line)
            yield LinePosition(offset, len(line), zlib.crc32(line)), line


@contextmanager
def open_stream(path: str) -> Iterator[BinaryIO]:
    """Open the bytes of a file, decompressed, or the output of a command. Raises SourceError if the command fails."""
    if path.startswith(PIPE):
        with _command(path) as output:
            yield output
        return
    try:
        with DATA.stream(path) as file:
            yield decompressed_stream(path, file) if path.lower().endswith(".gz") else file
    except OSError as error:
        raise os_error(error, path) from error


@contextmanager
def _command(path: str) -> Iterator[BinaryIO]:
    command = path.removeprefix(PIPE)
    with subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            yield cast(BinaryIO, process.stdout)
        except BaseException:  # also GeneratorExit, when the caller stops early
            process.kill()  # not SIGTERM, which it may ignore as we do
            raise
    if process.returncode:
        message = f"the command ended with status {process.returncode}, so there may be less than all of it"
        raise SourceError(message, path=path)


def _skip_to(file: BinaryIO, position: LinePosition, path: str, limit: int) -> None:
    longest = min(position.offset, max(limit, _LINE_MAX))
    if position != START and not (0 < position.size <= longest and position.offset < 1 << 62):
        raise FormatError(f"there is no line of {position.size} bytes before byte {position.offset}", path=path)
    before = position.offset - position.size
    if path.startswith(PIPE) or path.endswith(".gz"):
        for _ in _blocks(file, before):
            pass
    else:
        file.seek(before)
    size = crc = 0
    for block in _blocks(file, position.size):
        size, crc = size + len(block), zlib.crc32(block, crc)
    if size != position.size or crc != position.crc:
        message = "another line ends here than when the state was saved: the data changed"
        raise ChangedError(message, path=path, offset=position.offset)


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size and (block := file.read(min(size, _BLOCK))):
        yield block
        size -= len(block)


def stream_identity(path: str) -> tuple[str, int | None]:
    """Return the file name and size in bytes, which identify a stream; `("pipe:", None)` for a command.

    Raises NotFoundError or SourceError.
    """
    if path.startswith(PIPE):
        return PIPE, None
    return os.path.basename(path), DATA.stat(path).fingerprint.size
