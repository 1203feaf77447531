"""The wrapper of every request handler: only an errno ever leaves a handler.

The wrapper releases the read lock (`loop`), notes which request runs, and runs a request alone if it may have killed a
worker (`strikes`). It turns our errors into errnos, and other exceptions into EIO with a log line and a counter. Any
other exception from a handler would end pyfuse3's loop, and so the mount.
"""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from inspect import signature
from time import monotonic, monotonic_ns
from types import CoroutineType
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

import pyfuse3
from pyfuse3 import FUSEError

from touchfs.errors import TouchfsError, errno_of
from touchfs_mount.control.recent_errors import RecentErrors
from touchfs_mount.loop.loop import FAILURES
from touchfs_mount.numbers.slots import OPERATIONS, Slot
from touchfs_mount.requests.alone import Alone
from touchfs_mount.requests.branch import Answer
from touchfs_mount.requests.packed import unpack
from touchfs_mount.requests.strikes import ON_LOOP, PLACES

log = logging.getLogger(__name__)

LOG_SECONDS, LOGGED_KEPT = 60.0, 1000
# These are answers and no errors: the kernel shall not send such a request again; no attribute of this kind exists.
_ANSWERS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP})
_KEY_PARAMETERS = ("inode", "handle", "parent", "name")
# `key & _PLACE_MASK` is `key % PLACES`.
_PLACE_MASK = PLACES - 1


class Refusals:
    """Logs the errors that readers get, and adds them to the recent errors: each kind of error of each file once a
    minute, because a bad shard is read often.
    """

    def __init__(self, errors: RecentErrors) -> None:
        self._errors = errors
        self._logged: dict[tuple[type[TouchfsError], str | None], float] = {}

    def log(self, error: TouchfsError, number: object) -> None:
        """Log an error, unless one of its kind and path was logged within the last minute. One without a path is about
        the inode of this number.
        """
        key, now = (type(error), error.path), monotonic()
        if now - self._logged.get(key, -math.inf) < LOG_SECONDS:
            return
        if len(self._logged) >= LOGGED_KEPT:
            self._logged.clear()
        self._logged[key] = now
        error.at(f"inode {number}")
        self._errors.add(str(error))
        log.info("%s", error)


class HandlerOwner(Protocol):
    """An object with wrapped handlers. `entered` releases the read lock, if there is one. In `running` the wrapper
    notes the key of the request that runs on the loop. `struck` has the keys of requests with a strike. `numbers`
    counts requests; `record` is its method, looked up once.
    """

    entered: Callable[[], None] | None
    numbers: Slot
    record: Callable[[int, int], None]
    refusals: Refusals
    counters: memoryview[int]
    running: memoryview[int]
    struck: memoryview[int]
    alone: Alone
    offload: Callable[..., Awaitable[Any]]


P = ParamSpec("P")
T = TypeVar("T")


@overload
def handler(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]: ...
@overload
def handler(function: Callable[P, Answer[T]]) -> Callable[P, Coroutine[Any, Any, T]]: ...


def handler(function: Callable[P, Any]) -> Callable[P, Coroutine[Any, Any, Any]]:
    """Wrap a request handler, a method of a `HandlerOwner`."""
    name, call = function.__name__, cast(Callable[..., Any], function)
    operation = OPERATIONS.index(name)
    # The first arguments identify a request: an inode or a handle, and a name. Most requests have a number only, and
    # need no tuple to hash.
    keys = [parameter in _KEY_PARAMETERS for parameter in signature(function).parameters][1:3].count(True)
    has_number_only, salt = keys == 1, hash(name)

    @wraps(function)
    async def guarded(self: HandlerOwner, *arguments: Any) -> Any:
        if self.entered is not None:
            self.entered()
        began = monotonic_ns()
        running = self.running
        try:
            running[ON_LOOP] = key = hash(arguments[0]) ^ salt if has_number_only else hash((name, arguments[:keys]))
            if self.struck[key & _PLACE_MASK] == key and self.alone.strikes.has(key):
                return await _alone(self, key, name, arguments)
            answer = call(self, *arguments)
            return await answer if isinstance(answer, CoroutineType) else answer
        except FUSEError as error:
            if error.errno not in _ANSWERS:
                self.numbers.add_error(error.errno)
            raise
        except TouchfsError as error:
            self.refusals.log(error, arguments[0])
            self.numbers.add_error(errno_of(error))
            raise FUSEError(errno_of(error)) from error
        except Exception as error:
            self.counters[FAILURES] += 1
            self.numbers.add_error(errno.EIO)
            log.exception("%s%r failed", name, arguments)
            raise FUSEError(errno.EIO) from error
        finally:
            running[ON_LOOP] = 0
            self.record(operation, monotonic_ns() - began)

    return cast(Callable[P, Coroutine[Any, Any, Any]], guarded)


async def _alone(owner: HandlerOwner, key: int, name: str, arguments: tuple[Any, ...]) -> Any:
    """Run a handler in a process of its own, and return its result."""
    answer = await owner.offload(key, owner.alone.answer, key, name, arguments)
    for entry, attributes, cookie in answer.listed:
        if not pyfuse3.readdir_reply(arguments[-1], entry, unpack(attributes), cookie):
            break
    return unpack(answer.returned)
