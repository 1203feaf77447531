"""Ranges of one version of a file: all read at once, each tried again, and none believed of another version.

A request of a kind that has no condition is followed by a look at the version: stores replace files as a whole, so
between two equal looks there was no other one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from time import monotonic, sleep

from touchfs.errors import SourceError, SourceTimeoutError, TouchfsError
from touchfs.posix.paths import shown
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.clients import changed_error, converted_errors, reason_of, resolve
from touchfs.source.remote.options import StorageOptions
from touchfs.source.remote.requests import CHANGED, RangeRequest, http_status, may_pass, request_of
from touchfs.source.remote.versions import status_of
from touchfs.source.store import Status

# Requests at once for one read.
PARALLEL = 16
# The time of one attempt; the pause after it is doubled each time, and jittered so that clients do not come together.
ATTEMPT_SECONDS, PAUSE_SECONDS, PAUSE_MAX = 30.0, 0.1, 5.0
# A client that never gives the loop back cannot be timed out there.
_LATER_SECONDS = 5.0


def read_ranges(url: str, version: Fingerprint, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes of ranges `(start, stop)` of this version of a file; none is empty.

    Raises ChangedError, NotFoundError, SourceTimeoutError or SourceError.
    """
    from fsspec.asyn import get_loop, sync

    seconds = StorageOptions.configured().timeout_seconds
    request = request_of(url, resolve(url), version)
    with converted_errors(url):
        found: list[bytes] = sync(
            get_loop(), _read_all, request, url, ranges, monotonic() + seconds, timeout=seconds + _LATER_SECONDS
        )
    if not request.is_conditional and not version.matches(look(url)):
        raise changed_error(url)
    return found


def look(url: str) -> Fingerprint:
    """The fingerprint of a file now. Raises NotFoundError or SourceError."""
    return look_status(url).fingerprint


def look_status(url: str) -> Status:
    """The status of what is at a URL now, asked for again as ranges are. Raises NotFoundError or SourceError."""
    place, pauses = resolve(url), _pauses(monotonic() + StorageOptions.configured().timeout_seconds)
    while True:
        with converted_errors(url):
            try:
                return status_of(place.client.info(place.path))
            except Exception as error:
                # The client for HTTP calls a file missing whatever went wrong.
                problem = error.__cause__ if isinstance(error, FileNotFoundError) else error
                if not isinstance(problem, Exception) or not may_pass(problem):
                    raise
                if (pause := next(pauses)) is None:
                    raise SourceError(f"the store does not answer: {reason_of(problem)}", path=shown(url)) from error
                sleep(pause)


def _pauses(deadline: float) -> Iterator[float | None]:
    """How long to wait before each next attempt; None if there is no time for one."""
    pause = PAUSE_SECONDS
    while True:
        wait = pause * random.uniform(0.5, 1)
        yield wait if monotonic() + wait < deadline else None
        pause = min(pause * 2, PAUSE_MAX)


async def _read_all(request: RangeRequest, url: str, ranges: Sequence[tuple[int, int]], deadline: float) -> list[bytes]:
    slots = asyncio.Semaphore(PARALLEL)

    async def read(start: int, stop: int) -> bytes:
        async with slots:
            return await _tried(request, url, start, stop, deadline)

    tasks = [asyncio.ensure_future(read(*each)) for each in ranges]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _tried(request: RangeRequest, url: str, start: int, stop: int, deadline: float) -> bytes:
    """One range, tried again until `deadline` if what went wrong may pass."""
    pauses = _pauses(deadline)
    while True:
        left = deadline - monotonic()
        if left <= 0:
            raise SourceTimeoutError("the store does not answer in time", path=shown(url), offset=start)
        try:
            async with asyncio.timeout(min(ATTEMPT_SECONDS, left)):
                data = await request.read(start, stop)
            if len(data) == stop - start:
                return data
            problem: Exception = SourceError(
                f"the store sends {len(data):,} of {stop - start:,} bytes", path=shown(url), offset=start
            )
        except (TouchfsError, FileNotFoundError, PermissionError):
            raise
        except Exception as error:
            if http_status(error) == CHANGED:
                raise changed_error(url) from error
            if not may_pass(error):
                raise
            problem = error
        pause = next(pauses)
        if pause is None:
            raise problem
        await asyncio.sleep(pause)
