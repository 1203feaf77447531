"""Replaces trio in pyfuse3 by an object with the few names that its session loop calls.

pyfuse3 looks up its event library at run time; its own asyncio mode relies on that.
"""

from __future__ import annotations

import types
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pyfuse3


class _NoLock:
    """Replaces `trio.Lock`: only one session coroutine is stepped at a time anyway."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *exception: object) -> None: ...


class _SessionEndedError(Exception):
    """Replaces `trio.ClosedResourceError`, which our descriptor never raises."""


@types.coroutine
def _wait_readable(descriptor: int) -> Generator[None, None, None]:
    yield


@contextmanager
def in_place_of_trio(nursery: Any) -> Iterator[None]:
    """Make pyfuse3 use this nursery instead of trio."""
    namespace = types.SimpleNamespace
    task = namespace(name="session")
    replacement = namespace(
        Lock=_NoLock,
        ClosedResourceError=_SessionEndedError,
        open_nursery=lambda: nursery,
        lowlevel=namespace(
            current_task=lambda: task,
            current_trio_token=lambda: None,
            notify_closing=lambda descriptor: None,
            wait_readable=_wait_readable,
        ),
    )
    library = vars(pyfuse3)["trio"]
    vars(pyfuse3)["trio"] = replacement
    try:
        yield
    finally:
        vars(pyfuse3)["trio"] = library
