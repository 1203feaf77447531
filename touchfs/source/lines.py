"""The lines of a file, of a file compressed by gzip (`.gz`), or of what a command writes (`pipe:COMMAND`), in order.

Reading can go on behind a line: in a plain file at once, else by reading what comes before it again, unparsed. Whether
that line is still what it was is told by its CRC-32, so another file, or a command that writes something else the
second time, is an error.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, cast

from touchfs.errors import ChangedError, FormatError, NotFoundError, SourceError
from touchfs.limits import LIMITS, too_long

PIPE = "pipe:"
_LINE_MAX = 1 << 30  # of lines in states of version 0.1, which had no other limit
_BLOCK = 1 << 20


class LinePosition(NamedTuple):
    """Behind a line: where it ends, its size and CRC-32. The start is behind an empty one."""

    offset: int = 0
    size: int = 0
    crc: int = 0


START = LinePosition()


def lines_after(
    path: str, place: LinePosition = START, limit: int = LIMITS.json
) -> Iterator[tuple[LinePosition, bytes]]:
    """Each line behind a place, with its line feed, and the place behind it.

    A line must fit into memory, and a small .gz may have one of any size: raises FormatError for one of over `limit`
    bytes.
    """
    with open_stream(path) as file:
        _go_behind(file, place, path, limit)
        offset = place.offset
        while line := file.readline(limit + 1):
            if len(line) > limit:
                raise FormatError(too_long("a line", limit), path=path, offset=offset)
            offset += len(line)
            yield LinePosition(offset, len(line), zlib.crc32(line)), line


@contextmanager
def open_stream(path: str) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed, or those that a command writes. Raises SourceError when the command fails."""
    if path.startswith(PIPE):
        with _command(path) as output:
            yield output
        return
    try:
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
            yield cast(BinaryIO, file)
    except FileNotFoundError as error:
        raise NotFoundError("no such file", path=path) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"cannot be decompressed: {error}", path=path) from error
    except OSError as error:
        raise SourceError(error.strerror or str(error), path=path) from error


@contextmanager
def _command(path: str) -> Iterator[BinaryIO]:
    command = path.removeprefix(PIPE)
    with subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            yield cast(BinaryIO, process.stdout)
        except BaseException:  # also when nobody wants the rest
            process.terminate()
            raise
    if process.returncode:
        told = f"the command ended with status {process.returncode}, so there may be less than all of it"
        raise SourceError(told, path=path)


def _go_behind(file: BinaryIO, place: LinePosition, path: str, limit: int) -> None:
    longest = min(place.offset, max(limit, _LINE_MAX))
    if place != START and not (0 < place.size <= longest and place.offset < 1 << 62):
        raise FormatError(f"there is no line of {place.size} bytes before byte {place.offset}", path=path)
    before = place.offset - place.size
    if path.startswith(PIPE):
        for _ in _blocks(file, before):
            pass
    else:
        file.seek(before)
    size = crc = 0
    for block in _blocks(file, place.size):
        size, crc = size + len(block), zlib.crc32(block, crc)
    if size != place.size or crc != place.crc:
        told = "another line ends here than when the state was saved: this is not what it was"
        raise ChangedError(told, path=path, offset=place.offset)


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The next bytes of a file, fewer at its end."""
    while size and (block := file.read(min(size, _BLOCK))):
        yield block
        size -= len(block)


def stream_identity(path: str) -> tuple[str, int | None]:
    """What tells a stream from others wherever it lies. Of what a command will write nothing is known."""
    if path.startswith(PIPE):
        return PIPE, None
    try:
        return os.path.basename(path), os.stat(path).st_size
    except FileNotFoundError:
        raise NotFoundError("no such file", path=path) from None
    except OSError as error:
        raise SourceError(error.strerror or str(error), path=path) from error
