"""How a handler calls a function that may block: it awaits an `Offload`, which the loop gives to one of its pools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable
from typing import Any, TypeVar

from touchfs.errors import StateError
from touchfs_mount.loop.pool import CONTROL_THREADS, PoolLimits

# The pools for data and for the control directory. A step that has begun never times out: it may still happen.
DATA, CONTROL = 0, 1
DATA_LIMITS = PoolLimits()
CONTROL_LIMITS = PoolLimits(
    threads=24,
    share_threads=24,
    threads_max=CONTROL_THREADS,
    timeout_seconds=30,
    only_waiting=True,
    error_class=StateError,
)

T = TypeVar("T")


class Offload:
    """The awaitable on which a session coroutine parks: a call for a pool."""

    __slots__ = ("arguments", "function", "pool", "share")

    def __init__(self, pool: int, share: Hashable, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.pool = pool
        self.share = share
        self.function = function
        self.arguments = arguments

    def __await__(self) -> Generator[Offload, Any, Any]:
        return (yield self)


def offload(share: Hashable, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
    """Run a function that may block on data in a thread. Only for coroutines that a `Loop` drives."""
    return Offload(DATA, share, function, arguments)


def offload_control(share: Hashable, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
    """The same for a function that may block on the state store. Reads must use another share than writes."""
    return Offload(CONTROL, share, function, arguments)
