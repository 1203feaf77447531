"""Turns: few do something at a time, others wait for that in a short queue, and more are told to ask again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from touchfs.serve.answer import refusal

RETRY_AFTER = ("Retry-After", "5")


class Turns:
    """`at_once` turns, for which `most_waiting` threads wait, at most so many seconds. Refusals say `what`."""

    def __init__(self, what: str, at_once: int, most_waiting: int, seconds: float) -> None:
        self.slots = threading.BoundedSemaphore(at_once)
        self.waiting = 0
        self._line = f"too many {what}: ask again"
        self._most_waiting = most_waiting
        self.seconds = seconds
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A turn for the block. Raises Refusal if none gets free in time, or too many wait already."""
        if self.waiting or not self.slots.acquire(blocking=False):  # nobody comes before those who wait
            with self._lock:
                if self.waiting >= self._most_waiting:
                    raise self._busy()
                self.waiting += 1
            try:
                if not self.slots.acquire(timeout=self.seconds):
                    raise self._busy()
            finally:
                with self._lock:
                    self.waiting -= 1
        try:
            yield
        finally:
            self.slots.release()

    def _busy(self) -> Exception:
        return refusal(HTTPStatus.SERVICE_UNAVAILABLE, self._line, (RETRY_AFTER,))
