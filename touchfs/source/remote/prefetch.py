"""Fetching whole files before anybody reads them: each block that is not kept yet is fetched, and kept on the disk.

What is kept is not fetched again, so whoever was interrupted goes on where he was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from time import monotonic, sleep

from touchfs.source.remote.blocks import BLOCK, RemoteBlocks
from touchfs.source.remote.calls import deadline_from_now, result_in_time
from touchfs.source.remote.flights import FLIGHTS, REQUEST_MAX, Version
from touchfs.source.remote.kept import KEPT, FilePiece
from touchfs.source.remote.options import StorageOptions
from touchfs.source.scratch.behind import BEHIND

_DISK_SECONDS = 0.01


def fetch_all(blocks: RemoteBlocks, rate: float | None) -> Iterator[int]:
    """Fetch a file, at most `rate` bytes a second. Yields how many bytes are done each time, in order.

    Raises what `read_range` raises.
    """
    version = blocks.version
    size, per_request = version.fingerprint.size, REQUEST_MAX // BLOCK
    waiting: deque[tuple[int, list[Future[memoryview]], float]] = deque()
    begun, asked = monotonic(), 0
    last = -(-size // BLOCK)
    for first in range(0, last, per_request):
        pieces = [blocks.block(number) for number in range(first, min(first + per_request, last))]
        missing = [piece for piece in pieces if not KEPT.has(piece)]
        asked += len(missing) * BLOCK
        while BEHIND.is_behind or (rate is not None and asked > rate * (monotonic() - begun) + REQUEST_MAX):
            sleep(_DISK_SECONDS)
        length = min((first + per_request) * BLOCK, size) - first * BLOCK
        waiting.append((length, *_begin(version, missing)))
        if len(waiting) >= StorageOptions.configured().requests:
            yield _end(version, *waiting.popleft())
    while waiting:
        yield _end(version, *waiting.popleft())


def count_missing(blocks: RemoteBlocks) -> int:
    """How many bytes of a file are not kept, once all that waits for the disk is there."""
    BEHIND.wait()
    size = blocks.version.fingerprint.size
    pieces = map(blocks.block, range(-(-size // BLOCK)))
    return sum(min(piece.size, size - piece.start) for piece in pieces if not KEPT.is_on_disk(piece))


def _begin(version: Version, missing: list[FilePiece]) -> tuple[list[Future[memoryview]], float]:
    deadline = deadline_from_now()
    return (FLIGHTS.fetch(version, missing, deadline) if missing else []), deadline


def _end(version: Version, length: int, futures: list[Future[memoryview]], deadline: float) -> int:
    for future in futures:
        result_in_time(future, version.url, deadline)
    return length
