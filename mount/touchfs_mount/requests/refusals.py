"""The errors that readers get: in the log, and in `.touchfs/errors`."""

from __future__ import annotations

import logging
import math
from time import monotonic

from touchfs.core.errors import TouchfsError
from touchfs.posix.bounded_cache import BoundedCache
from touchfs_mount.numbers.recent_errors import RecentErrors

log = logging.getLogger(__name__)

LOG_SECONDS, LOGGED_KEPT = 60.0, 1000


class Refusals:
    """Logs the errors that readers get, and adds them to the recent errors: each kind of error of each file once a
    minute, because a bad shard is read often.
    """

    def __init__(self, errors: RecentErrors) -> None:
        self._errors = errors
        self._logged: BoundedCache[tuple[type[TouchfsError], str | None], float] = BoundedCache(LOGGED_KEPT)

    def log(self, error: TouchfsError, number: object) -> None:
        """Log an error, unless one of its kind and path was logged within the last minute. One without a path is about
        the inode of this number.
        """
        error.at(f"inode {number}")
        key, now = (type(error), error.path), monotonic()
        if now - (self._logged.find(key) or -math.inf) < LOG_SECONDS:
            return
        self._logged.keep(key, now)
        self._errors.add(str(error))
        log.info("%s", error)
