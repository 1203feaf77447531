"""What every handler of a request is wrapped in, so that nothing but an errno ever leaves it.

The wrapper releases the read lock (`loop`), notes what runs, and has run alone what may have ended a worker
(`strikes`). It turns our errors into errnos, and anything else into EIO with a log line and a counter. An exception
that left a handler would end pyfuse3's loop and the mount.
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
from typing import Any, Protocol, TypeVar, cast

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
_KNOWN_BY = ("inode", "handle", "parent", "name")


class Refusals:
    """Logs what readers are refused, and adds it to the recent errors: each kind of error of each file once a minute,
    as one bad shard is asked often.
    """

    def __init__(self, errors: RecentErrors) -> None:
        self._errors = errors
        self._logged: dict[tuple[type[TouchfsError], str | None], float] = {}

    def log(self, error: TouchfsError) -> None:
        what, now = (type(error), error.path), monotonic()
        if now - self._logged.get(what, -math.inf) < LOG_SECONDS:
            return
        if len(self._logged) >= LOGGED_KEPT:
            self._logged.clear()
        self._logged[what] = now
        self._errors.add(str(error))
        log.info("%s", error)


class HandlerOwner(Protocol):
    """Whose handlers are wrapped. `entered` releases the read lock, where there is one. In `running` they note the key
    of the request that runs on the loop; `struck` are the keys of those with a strike.
    """

    entered: Callable[[], None] | None
    refusals: Refusals
    counters: memoryview[int]
    running: memoryview[int]
    struck: memoryview[int]
    alone: Alone
    offload: Callable[..., Awaitable[Any]]


Handler = TypeVar("Handler", bound=Callable[..., Coroutine[Any, Any, Any]])


def handler(function: Handler) -> Handler:
    name = function.__name__
    # A request is known by these arguments: an inode or a handle, and a name.
    known_by = [parameter in _KNOWN_BY for parameter in signature(function).parameters][1:3].count(True)
    known = itemgetter(*range(known_by)) if known_by else len

    @wraps(function)
    async def guarded(self: HandlerOwner, *arguments: Any) -> Any:
        if self.entered is not None:
            self.entered()
        try:
            self.running[ON_LOOP] = key = hash((name, known(arguments)))
            if self.struck[key % PLACES] == key and self.alone.strikes.has(key):
                return await _alone(self, key, name, arguments)
            return await function(self, *arguments)
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

    return cast(Handler, guarded)


async def _alone(guarded: HandlerOwner, key: int, name: str, arguments: tuple[Any, ...]) -> Any:
    """What a handler returns that runs in a process of its own."""
    answer = await guarded.offload(key, guarded.alone.answer, key, name, arguments)
    for entry, attributes, place in answer.listed:
        if not pyfuse3.readdir_reply(arguments[-1], entry, unpack(attributes), place):
            break
    return unpack(answer.returned)
