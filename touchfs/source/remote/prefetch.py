"""Fetching whole files before anybody reads them: each block that is not kept yet is fetched, and kept on the disk.

What is kept is not fetched again, so whoever was interrupted goes on where he was.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from time import monotonic, sleep

from touchfs.source.pace import Pace
from touchfs.source.remote.blocks import BLOCK, RemoteBlocks
from touchfs.source.remote.calls import deadline_from_now, result_in_time
from touchfs.source.remote.flights import FLIGHTS, REQUEST_MAX, Version
from touchfs.source.remote.kept import KEPT, FilePiece
from touchfs.source.remote.options import StorageOptions
from touchfs.source.scratch.behind import BEHIND

# The interval of looks at what waits for the disk. A disk that has kept nothing for so long is not waited for.
_DISK_SECONDS, _STILL_SECONDS = 0.01, 5.0


def fetch_all(blocks: RemoteBlocks, pace: Pace | None) -> Iterator[int]:
    """Fetch a file, at a pace if one is given. Yields how many bytes are done each time, in order.

    Raises what `read_range` raises.
    """
    version = blocks.version
    size, per_request = version.fingerprint.size, REQUEST_MAX // BLOCK
    waiting: deque[tuple[int, list[Future[memoryview]], float]] = deque()
    last = -(-size // BLOCK)
    for first in range(0, last, per_request):
        pieces = [blocks.block(number) for number in range(first, min(first + per_request, last))]
        missing = [piece for piece in pieces if not KEPT.has(piece)]
        while BEHIND.is_behind:
            sleep(_DISK_SECONDS)
        if pace is not None and missing:
            pace.wait(_size(missing, size))
        length = min((first + per_request) * BLOCK, size) - first * BLOCK
        waiting.append((length, *_begin(version, missing)))
        requests = StorageOptions.configured().requests
        while waiting and (len(waiting) >= requests or all(future.done() for future in waiting[0][1])):
            yield _end(version, *waiting.popleft())
    while waiting:
        yield _end(version, *waiting.popleft())


def count_missing(blocks: RemoteBlocks) -> int:
    """How many bytes of a file are not kept, once all that waits for the disk is there."""
    _wait_for_disk()
    size = blocks.version.fingerprint.size
    pieces = map(blocks.block, range(-(-size // BLOCK)))
    return _size((piece for piece in pieces if not KEPT.is_on_disk(piece)), size)


def _wait_for_disk() -> None:
    """Wait until all that has landed is kept, as long as the disk gets on."""
    least, until = math.inf, 0.0
    while waiting := FLIGHTS.waiting + BEHIND.waiting:
        now = monotonic()
        if waiting < least:
            least, until = waiting, now + _STILL_SECONDS
        elif now > until:
            return
        sleep(_DISK_SECONDS)


def _size(pieces: Iterable[FilePiece], file_size: int) -> int:
    """Bytes of pieces of a file. Its last piece may be a short one."""
    return sum(min(piece.size, file_size - piece.start) for piece in pieces)


def _begin(version: Version, missing: list[FilePiece]) -> tuple[list[Future[memoryview]], float]:
    deadline = deadline_from_now()
    return (FLIGHTS.fetch(version, missing, deadline) if missing else []), deadline


def _end(version: Version, length: int, futures: list[Future[memoryview]], deadline: float) -> int:
    for future in futures:
        result_in_time(future, version.url, deadline)
    return length
