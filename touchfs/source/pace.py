"""The pace at which files are fetched to this machine before they are read."""

from __future__ import annotations

from time import monotonic, sleep


class Pace:
    """Lets requests begin so that no more than `rate` bytes a second are asked for, whatever files they are of.

    Each waits until the bytes of the one before it are due. Time in which nothing was asked for is not made up for.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = 0.0

    def wait(self, size: int) -> None:
        """Wait until a request of `size` bytes may begin."""
        now = monotonic()
        sleep(max(self._due - now, 0))
        self._due = max(self._due, now) + size / self._rate
