"""What every handler of a request is wrapped in, so that nothing but an errno ever leaves it.

The wrapper releases the read lock (`loop`), turns our errors into errnos, and anything else into EIO with a log line
and a counter. An exception that left a handler would end pyfuse3's loop and the mount.
"""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Callable, Coroutine
from functools import wraps
from time import monotonic
from typing import Any, Protocol, TypeVar, cast

from pyfuse3 import FUSEError

from touchfs.errors import TouchfsError
from touchfs_mount.errnos import errno_of
from touchfs_mount.loop import FAILURES
from touchfs_mount.recent_errors import RecentErrors

log = logging.getLogger(__name__)

LOG_SECONDS, LOGGED_KEPT = 60.0, 1000


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


class Guarded(Protocol):
    """Whose handlers are wrapped. `entered` releases the read lock, where there is one."""

    entered: Callable[[], None] | None
    refusals: Refusals
    counters: memoryview[int]


Handler = TypeVar("Handler", bound=Callable[..., Coroutine[Any, Any, Any]])


def handler(function: Handler) -> Handler:
    @wraps(function)
    async def guarded(self: Guarded, *arguments: Any) -> Any:
        if self.entered is not None:
            self.entered()
        try:
            return await function(self, *arguments)
        except FUSEError:
            raise
        except TouchfsError as error:
            self.refusals.log(error)
            raise FUSEError(errno_of(error)) from error
        except Exception as error:
            self.counters[FAILURES] += 1
            log.exception("%s%r failed", function.__name__, arguments)
            raise FUSEError(errno.EIO) from error

    return cast(Handler, guarded)
