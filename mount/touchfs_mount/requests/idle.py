"""The work of a worker while no request waits: it precomputes what the next request is likely to read."""

from __future__ import annotations

import logging

from touchfs.iterators.precompute import Precompute
from touchfs_mount.loop.loop import FAILURES
from touchfs_mount.requests.environment import Environment
from touchfs_mount.requests.strikes import ON_LOOP

log = logging.getLogger(__name__)

# Stands for the key of a request in `running`.
_PRECOMPUTING = 1


class Idle:
    """Runs `precompute`, if there is any, so that neither a failure nor a death in it affects more than one request."""

    def __init__(self, precompute: Precompute | None, environment: Environment) -> None:
        self._precompute = precompute
        self._environment = environment
        if precompute is not None:
            precompute.is_on = environment.entered is None  # a single worker gets all requests

    @property
    def has_work(self) -> bool:
        """True if `begin` would compute something."""
        return self._precompute is not None and self._precompute.has_work

    def begin(self) -> bool:
        """Precompute. If this fails, or has killed a worker, it is turned off. True if `end` is needed, as the store is
        locked until then or until the text is read.
        """
        precompute, environment = self._precompute, self._environment
        if precompute is None:
            return False
        if not precompute.has_work:
            return precompute.has_text
        try:
            environment.running[ON_LOOP] = _PRECOMPUTING
            precompute.is_on = not environment.alone.strikes.has(_PRECOMPUTING)
            if precompute.is_on:
                precompute.run()
        except Exception:
            precompute.is_on = False
            environment.counters[FAILURES] += 1
            log.exception("precomputing failed, and is disabled from now on")
        finally:
            environment.running[ON_LOOP] = 0
        return precompute.has_text

    def end(self) -> None:
        """Roll back what was not read."""
        if self._precompute is not None:
            self._precompute.rollback()
