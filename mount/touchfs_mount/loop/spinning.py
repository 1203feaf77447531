"""Decides whether a worker spins: polls for the next request for a while, before it sleeps.

A program that was just answered often sends its next request within `SPIN_NS`. On an idle virtual machine this makes
successive opens and small reads 1.4 to 1.9 times as fast, because a processor with nothing to do is halted, and takes
some 25 µs to wake up. It takes a processor for as long as it lasts, so a worker spins only

- if there is room: besides the worker and its readers, the machine has at least two processors more than threads that
  are runnable. With a busy loop on each of two processors, a worker that spins serves less than half of the files. The
  kernel counts runnable threads in /proc/loadavg; to read that takes 3 µs, here at most every 5 ms, after an answer;
- if it is not delayed: the processors of its cpuset may be busy while others of the machine are idle. On busy
  processors a worker that spins waits for its own for 30 to 55 % of the time, else mostly for less than 30 %. How long
  it waited is in /proc/thread-self/schedstat (1 µs);
- if it may run on several processors, as a reader may have the same one;
- and mostly if some of the last 16 spins have brought a request. A reader that computes between reads brings none.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from time import monotonic_ns

SPIN_NS = 50_000

_SAMPLE_NS, _ROOM_NS, _DELAY_NS = 5_000_000, 50_000_000, 200_000_000
_DELAYED = 0.35
_PAUSE_NS, _PAUSE_MAX_NS = 1_000_000_000, 16_000_000_000
_MISSES = 16


class Spinning:
    """The decision for the thread that creates it. `has_room` is the last answer to the first three questions above."""

    def __init__(self) -> None:
        self._processors = os.cpu_count() or 1
        self._load, self._delay = _open("/proc/loadavg"), _open("/proc/thread-self/schedstat")
        # When the next sample is due; only `poll` takes it.
        self.sample_at = self._decide_at = 0
        self._samples = self._crowded = 0
        # Since when it spins, and for how long it had waited by then. After a delay it pauses, each time for longer.
        self._since, self._waited_before = 0, 0
        self._pause_until, self._pause_ns = 0, _PAUSE_NS
        self._misses = self._skipped = 0
        self._is_useless = len(os.sched_getaffinity(0)) == 1 or not SPIN_NS
        self.has_room = not self._is_useless

    def poll(self, descriptors: select.poll, readers: int) -> list[tuple[int, int]]:
        """Poll for `SPIN_NS` if the worker is to spin. Returns the events, none if it does not spin or none came.

        `readers` is the number of threads that opened files of late.
        """
        now = monotonic_ns()
        if now >= self.sample_at:
            self._sample(now, readers)
        if not self.has_room:
            return []
        if self._misses >= _MISSES:
            self._skipped += 1
            if self._skipped % _MISSES:
                return []
        until = now + SPIN_NS
        while monotonic_ns() < until:
            if events := descriptors.poll(0):
                self._misses = 0
                return events
        self._misses += 1
        return []

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self._load, self._delay):
            if descriptor is not None:
                os.close(descriptor)

    def _sample(self, now: int, readers: int) -> None:
        self.sample_at = now + _SAMPLE_NS
        self._samples += 1
        if self._load is not None:
            running = int(os.pread(self._load, 64, 0).split()[3].partition(b"/")[0])
            self._crowded += running - 1 - max(readers, 1) > self._processors - 2
        if now >= self._decide_at:
            self._decide_at = now + _ROOM_NS
            is_crowded = 2 * self._crowded > self._samples
            self._samples = self._crowded = 0
            self._notice_delay(now)
            self.has_room = not (self._is_useless or is_crowded or now < self._pause_until)

    def _notice_delay(self, now: int) -> None:
        """Pause if the worker was delayed while it was spinning."""
        if not self.has_room:
            self._since = 0
            return
        lasted = now - self._since
        if self._since and lasted < _DELAY_NS:
            return
        waited = self._waited_ns()
        if self._since and waited - self._waited_before > _DELAYED * lasted:
            self._pause_until = now + self._pause_ns
            self._pause_ns = min(2 * self._pause_ns, _PAUSE_MAX_NS)
        elif self._since:
            self._pause_ns = _PAUSE_NS
        self._since, self._waited_before = now, waited

    def _waited_ns(self) -> int:
        """For how long this thread was runnable and had no processor, since it began."""
        return 0 if self._delay is None else int(os.pread(self._delay, 64, 0).split()[1])


def _open(path: str) -> int | None:
    """A descriptor of a file of /proc, None if this kernel or container has no such file."""
    with suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None
