"""Calls of clients of stores: they run on fsspec's loop, and callers wait up to their deadline.

A caller is answered in time whatever a client does: also if it never gives the loop back, or hangs in a thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

from touchfs.core.errors import SourceTimeoutError
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.posix.threads import start_call
from touchfs.source.remote.storage_options import StorageOptions

T = TypeVar("T")
# A mount gives up a read at its time-out, too. The store's answer has the reason, so it comes a moment earlier.
_EARLIER, _EARLIER_SECONDS = 0.1, 1.0
# A call that is in time ends by itself at its deadline, and says why. It is waited for a moment longer than that.
_LATER_SECONDS = 0.05
_SILENT_SECONDS, _SILENT_MAX = 1.0, 1024
# By URL, the time until which reads of a file fail at once, after a time-out.
_SILENT: BoundedCache[str, float] = BoundedCache(_SILENT_MAX)


def deadline_from_now() -> float:
    """The time by which a call that begins now must have ended, by the monotonic clock."""
    seconds = StorageOptions.configured().timeout_seconds
    return monotonic() + seconds - min(seconds * _EARLIER, _EARLIER_SECONDS)


def begin(call: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Start a call on the loop. The future can be waited for by any thread of this process."""
    from fsspec.asyn import get_loop

    return asyncio.run_coroutine_threadsafe(call, get_loop())


def on_loop(function: Callable[..., object], *arguments: Any) -> None:
    """Call a function on the loop, soon. This waits for nothing."""
    from fsspec.asyn import get_loop

    get_loop().call_soon_threadsafe(function, *arguments)


def result_in_time(future: concurrent.futures.Future[T], url: str, deadline: float) -> T:
    """The result of a call. Raises what it raises, and SourceTimeoutError at the deadline; then the call goes on.

    If a read of a page fails, the kernel asks for it once more, and again for less. So for a moment after a time-out
    nobody waits for the same file: else one read would take the time several times.
    """
    now = monotonic()
    is_silent = now < (_SILENT.find(url) or 0)
    try:
        return future.result(0 if is_silent else max(deadline - now, 0) + _LATER_SECONDS)
    except (TimeoutError, SourceTimeoutError) as error:
        if not is_silent:
            _SILENT.keep(url, monotonic() + _SILENT_SECONDS)
        if isinstance(error, SourceTimeoutError):
            raise
        raise timeout_error(url) from error


def timeout_error(url: str, reason: str | None = None) -> SourceTimeoutError:
    """The error of a store that was not able to answer in time, and why it was not as far as it said."""
    cause = "" if reason is None else f"; at last: {reason}"
    return SourceTimeoutError(f"the store does not answer in time{cause}", path=url)


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that may block, in a thread of its own. If it hangs, the process can end nevertheless."""
    return await asyncio.wrap_future(start_call(function, *arguments, name="store-call"))
