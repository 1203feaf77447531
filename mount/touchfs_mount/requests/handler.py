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
from operator import itemgetter
from time import monotonic
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import pyfuse3
from pyfuse3 import FUSEError

from touchfs.errors import TouchfsError
from touchfs_mount.control.recent_errors import RecentErrors
from touchfs_mount.loop.loop import FAILURES
from touchfs_mount.requests.alone import Alone
from touchfs_mount.requests.errnos import errno_of
from touchfs_mount.requests.packed import unpack
from touchfs_mount.requests.strikes import ON_LOOP, PLACES

log = logging.getLogger(__name__)

LOG_SECONDS, LOGGED_KEPT = 60.0, 1000
_KEY_PARAMETERS = ("inode", "handle", "parent", "name")


class Refusals:
    """Logs the errors that readers get, and adds them to the recent errors: each kind of error of each file once a
    minute, because a bad shard is read often.
    """

    def __init__(self, errors: RecentErrors) -> None:
        self._errors = errors
        self._logged: dict[tuple[type[TouchfsError], str | None], float] = {}

    def log(self, error: TouchfsError) -> None:
        """Log an error, unless one of its kind and path was logged within the last minute."""
        key, now = (type(error), error.path), monotonic()
        if now - self._logged.get(key, -math.inf) < LOG_SECONDS:
            return
        if len(self._logged) >= LOGGED_KEPT:
            self._logged.clear()
        self._logged[key] = now
        self._errors.add(str(error))
        log.info("%s", error)


class HandlerOwner(Protocol):
    """An object with wrapped handlers. `entered` releases the read lock, if there is one. In `running` the wrapper
    notes the key of the request that runs on the loop. `struck` has the keys of requests with a strike.
    """

    entered: Callable[[], None] | None
    refusals: Refusals
    counters: memoryview[int]
    running: memoryview[int]
    struck: memoryview[int]
    alone: Alone
    offload: Callable[..., Awaitable[Any]]


P = ParamSpec("P")
T = TypeVar("T")


def handler(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Wrap a request handler, a method of a `HandlerOwner`."""
    name, call = function.__name__, cast(Callable[..., Awaitable[T]], function)
    # These arguments identify a request: an inode or a handle, and a name.
    key_arguments = [parameter in _KEY_PARAMETERS for parameter in signature(function).parameters][1:3].count(True)
    identify = itemgetter(*range(key_arguments)) if key_arguments else len

    @wraps(function)
    async def guarded(self: HandlerOwner, *arguments: Any) -> T:
        if self.entered is not None:
            self.entered()
        try:
            self.running[ON_LOOP] = key = hash((name, identify(arguments)))
            if self.struck[key % PLACES] == key and self.alone.strikes.has(key):
                result: T = await _alone(self, key, name, arguments)
                return result
            return await call(self, *arguments)
        except FUSEError:
            raise
        except TouchfsError as error:
            self.refusals.log(error)
            raise FUSEError(errno_of(error)) from error
        except Exception as error:
            self.counters[FAILURES] += 1
            log.exception("%s%r failed", name, arguments)
            raise FUSEError(errno.EIO) from error
        finally:
            self.running[ON_LOOP] = 0

    return cast(Callable[P, Coroutine[Any, Any, T]], guarded)


async def _alone(owner: HandlerOwner, key: int, name: str, arguments: tuple[Any, ...]) -> Any:
    """Run a handler in a process of its own, and return its result."""
    answer = await owner.offload(key, owner.alone.answer, key, name, arguments)
    for entry, attributes, cookie in answer.listed:
        if not pyfuse3.readdir_reply(arguments[-1], entry, unpack(attributes), cookie):
            break
    return unpack(answer.returned)
