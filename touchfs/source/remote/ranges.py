"""Ranges and descriptions of files: each is asked for again until it comes or time is up, and none is believed of
another version.

A request of a kind that has no condition is followed by a look at the version: stores replace files as a whole, so
between two equal looks there was no other one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit

from touchfs.core.errors import NoAnswerError, SourceError, TouchfsError
from touchfs.core.urls import shown
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.calls import begin, deadline_from_now, in_thread, result_in_time, timeout_error
from touchfs.source.remote.client_errors import (
    CHANGED,
    FORBIDDEN,
    MISSING,
    changed_error,
    converted_errors,
    http_status,
    is_refused,
    is_unknown_host,
    may_pass,
    reason_of,
)
from touchfs.source.remote.clients import resolve
from touchfs.source.remote.protocols import Place
from touchfs.source.remote.requests import request_of
from touchfs.source.remote.slots import SLOTS
from touchfs.source.remote.versions import status_of
from touchfs.source.store import Status

T = TypeVar("T")
# The time of one attempt; the pause after it is doubled each time, and jittered so that clients do not come together.
ATTEMPT_SECONDS, PAUSE_SECONDS, PAUSE_MAX = 30.0, 0.1, 5.0
# An unknown host, and one that refuses us and has never answered, are tried no more often than that: most are typing
# errors. Others may be started again just now.
UNKNOWN_TRIES = 3
_ANSWERED: set[str] = set()
# After that time we warn that we wait, once a minute for each host.
WARN_SECONDS, _WARN_AGAIN_SECONDS = 3.0, 60.0
_WARNED: dict[str, float] = {}
log = logging.getLogger(__name__)


async def read_range(
    url: str, version: Fingerprint, start: int, stop: int, deadline: float, *, has_slot: bool = False
) -> memoryview:
    """The bytes from `start` to `stop` of this version of a file. With `has_slot`, a slot was taken for the request.

    Raises ChangedError, NotFoundError, SourceTimeoutError or SourceError.
    """
    taken = [has_slot]

    async def attempt() -> memoryview:
        async with SLOTS.slot(url, is_taken=taken.pop() if taken else False):
            data = await request.read(start, stop)
        if len(data) != stop - start:
            # An error that may pass, as a connection that ends early.
            raise OSError(f"the store sends {len(data):,} of {stop - start:,} bytes")
        return memoryview(data).toreadonly()

    with converted_errors(url):
        try:
            request = request_of(url, resolve(url), version)
            found = await tried(url, attempt, deadline)
        finally:
            if any(taken):  # no attempt was made
                SLOTS.give_back()
        if not request.is_conditional and not version.matches((await look_again(url, deadline)).fingerprint):
            raise changed_error(url)
        return found


def look(url: str, deadline: float | None = None) -> Fingerprint:
    """The fingerprint of a file now. Raises NotFoundError or SourceError, at the deadline SourceTimeoutError."""
    return look_status(url, deadline).fingerprint


def look_status(url: str, deadline: float | None = None) -> Status:
    """The status of what is at a URL now. Raises NotFoundError or SourceError, at the deadline SourceTimeoutError."""
    deadline = deadline_from_now() if deadline is None else deadline
    resolve(url)  # in this thread: to import a client takes a while
    return result_in_time(begin(look_again(url, deadline)), url, deadline)


async def look_again(url: str, deadline: float) -> Status:
    """The status of what is at a URL now, asked for again until `deadline`. Raises as `look_status`."""

    async def attempt() -> Status:
        return status_of(await _info(resolve(url)))

    with converted_errors(url):
        return await tried(url, attempt, deadline)


def list_directory(url: str) -> list[dict[str, Any]]:
    """List a directory: the client's dictionary for each entry. Raises as `look_status`."""
    deadline, (client, path) = deadline_from_now(), resolve(url)

    async def attempt() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await (
            client._ls(path, detail=True) if client.async_impl else in_thread(client.ls, path, True)
        )
        return found

    async def listed() -> list[dict[str, Any]]:
        with converted_errors(url):
            return await tried(url, attempt, deadline)

    return result_in_time(begin(listed()), url, deadline)


def find_below_empty(url: str) -> list[str]:
    """The paths, for the client of an object store, of the files below a URL whose next part is empty, as `url//x`.

    Raises as `look_status`.
    """
    deadline, (client, path) = deadline_from_now(), resolve(url)

    async def attempt() -> list[str]:
        return sorted(await client._find(path, prefix="/"))

    async def found() -> list[str]:
        with converted_errors(url):
            return await tried(url, attempt, deadline)

    return result_in_time(begin(found()), url, deadline)


async def _info(place: Place) -> dict[str, object]:
    client, path = place
    found: dict[str, object] = await (client._info(path) if client.async_impl else in_thread(client.info, path))
    return found


async def tried(
    url: str, attempt: Callable[[], Awaitable[T]], deadline: float, attempt_seconds: float = ATTEMPT_SECONDS
) -> T:
    """The result of an attempt, tried again until `deadline` if what went wrong may pass.

    Raises TouchfsError, and what the client raises: see `converted_errors`.
    """
    host = urlsplit(url).netloc
    warning = asyncio.get_running_loop().call_later(WARN_SECONDS, _warn, url, deadline)
    try:
        result = await _tried(url, host, attempt, deadline, attempt_seconds)
    finally:
        warning.cancel()
    _ANSWERED.add(host)
    return result


def _warn(url: str, deadline: float) -> None:
    host, now = urlsplit(url).netloc, monotonic()
    if now >= _WARNED.get(host, 0):
        _WARNED[host] = now + _WARN_AGAIN_SECONDS
        message = "%s: the store does not answer yet, and is tried again for %.0f s (--timeout)"
        log.warning(message, shown(url), deadline - now)


async def _tried(
    url: str, host: str, attempt: Callable[[], Awaitable[T]], deadline: float, attempt_seconds: float
) -> T:
    pauses, reason, tries = _pauses(deadline), None, 0
    while (left := deadline - monotonic()) > 0:
        tries += 1
        try:
            async with asyncio.timeout(min(attempt_seconds, left)):
                return await attempt()
        except TouchfsError:
            raise
        except Exception as error:
            # The client for HTTP calls a file missing whatever went wrong.
            problem = error.__cause__ if isinstance(error, FileNotFoundError) else error
            if http_status(error) == CHANGED:
                raise changed_error(url) from error
            if http_status(error) == MISSING:
                raise FileNotFoundError(url) from error
            if http_status(error) == FORBIDDEN:
                raise PermissionError(url) from error
            if isinstance(problem, SourceError):
                raise problem from problem.__cause__
            if isinstance(problem, FileNotFoundError | PermissionError) or not isinstance(problem, Exception):
                raise
            is_nowhere = is_unknown_host(problem) or (is_refused(problem) and host not in _ANSWERED)
            if is_nowhere and tries >= UNKNOWN_TRIES:  # a host that nobody answers at must not be asked for each file
                raise NoAnswerError(f"cannot be read: {reason_of(problem)}", path=url) from problem
            if not may_pass(problem):
                raise problem from problem.__cause__
            if not isinstance(problem, TimeoutError):
                reason = reason_of(problem)
        pause = next(pauses)
        if pause is None:
            break
        await asyncio.sleep(pause)
    raise timeout_error(url, reason)


def _pauses(deadline: float) -> Iterator[float | None]:
    """Yield the seconds to wait before each next attempt; None if there is no time for one."""
    pause = PAUSE_SECONDS
    while True:
        wait = pause * random.uniform(0.5, 1)
        yield wait if monotonic() + wait < deadline else None
        pause = min(pause * 2, PAUSE_MAX)
