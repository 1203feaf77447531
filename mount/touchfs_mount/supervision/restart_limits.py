"""The limits of restarts of one kind of process, on trio's clock.

Workers may fail by themselves (not by a signal) `FAILURES_ALLOWED` times within `FAILURES_SECONDS`: then the dataset or
touchfs is at fault, and another worker would fail, too. Workers that are killed by signals are replaced without limit,
but at most `ENDS_PER_SECOND` of them per second: a request that kills every worker must not use up the machine. One for
which the system has no room has not failed.
"""

from __future__ import annotations

from collections import deque

import trio

FAILURES_ALLOWED, FAILURES_SECONDS = 10, 10.0
ENDS_PER_SECOND = 40
PAUSE_SECONDS = 1.0
# The exit status of a process for which the system had no room (EX_TEMPFAIL of sysexits.h).
LACKED_ROOM = 75


class RestartLimits:
    """Remembers when workers ended badly."""

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=FAILURES_ALLOWED)
        self._ends: deque[float] = deque(maxlen=ENDS_PER_SECOND)

    def are_useless_after(self, status: int) -> bool:
        """Note that a worker ended with a status. True if too many have failed for another to be started."""
        self._ends.append(trio.current_time())
        if status <= 0 or status == LACKED_ROOM:
            return False
        self._failures.append(trio.current_time())
        return _has_filled(self._failures, FAILURES_SECONDS)

    def pause_seconds(self, status: int) -> float:
        """How long to wait before the next start, after an end with a status."""
        return PAUSE_SECONDS if status == LACKED_ROOM or _has_filled(self._ends, 1.0) else 0.0


def _has_filled(times: deque[float], seconds: float) -> bool:
    """True if the deque is full of times that are no more than `seconds` apart."""
    return len(times) == times.maxlen and times[-1] - times[0] < seconds
