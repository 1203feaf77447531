"""The wrapper of every handler of the control directory: only an errno ever leaves a handler.

It notes which request runs, so that one that kills its process again and again is refused (`strikes`), counts it, and
turns our errors into errnos, and other exceptions into EIO with a log line. Any other exception from a handler would
end pyfuse3's loop, and so the control mount.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import Any

from pyfuse3 import FUSEError

from touchfs.core.errors import FormatError, TouchfsError, errno_of, shortage_of
from touchfs_mount.numbers.cells import FAILURES, PARKED, REQUESTS
from touchfs_mount.numbers.slots import OPERATIONS
from touchfs_mount.requests.refusals import Refusals
from touchfs_mount.requests.server import Worker
from touchfs_mount.requests.strikes import KILLS, ON_LOOP

log = logging.getLogger(__name__)

Handler = Callable[..., Awaitable[Any]]

# This is an answer and no error: the kernel shall not send such a request again.
_ANSWERS = frozenset({errno.ENOSYS})


def guarded(handlers: dict[str, Handler], worker: Worker, refusals: Refusals) -> dict[str, Handler]:
    """Wrap the handlers of a process, by operation. The first argument of each is an inode or a handle."""
    places = list(range(ON_LOOP, len(worker.running)))
    return {name: _guarded(name, handle, worker, refusals, places) for name, handle in handlers.items()}


def _guarded(name: str, handle: Handler, worker: Worker, refusals: Refusals, places: list[int]) -> Handler:
    """`places` has the free ones of `running`: each operation that runs has its own."""
    operation, salt = OPERATIONS.index(name), hash(name)
    counters, numbers, strikes = worker.counters, worker.numbers, worker.strikes

    async def handler(*arguments: Any) -> Any:
        began = monotonic_ns()
        counters[REQUESTS] += 1
        counters[PARKED] += 1
        key = hash(arguments[0]) ^ salt or 1
        place = places.pop() if places else None
        try:
            if place is not None:
                worker.running[place] = key
            if strikes.is_refused(key):
                raise FormatError(KILLS)
            answer = await handle(*arguments)
            strikes.forgive(key)
            return answer
        except FUSEError as error:
            if error.errno not in _ANSWERS:
                numbers.add_error(error.errno)
            raise
        except TouchfsError as error:
            refusals.log(error, arguments[0])
            numbers.add_error(errno_of(error))
            raise FUSEError(errno_of(error)) from error
        except Exception as error:
            lacking = shortage_of(error)
            numbers.add_error(lacking or errno.EIO)
            if lacking is None:
                counters[FAILURES] += 1
                log.exception("%s%r failed", name, arguments)
            else:
                log.warning("%s has no room: %s", name, error)
            raise FUSEError(lacking or errno.EIO) from error
        finally:
            if place is not None:
                worker.running[place] = 0
                places.append(place)
            counters[PARKED] -= 1
            numbers.record(operation, monotonic_ns() - began)

    return handler
