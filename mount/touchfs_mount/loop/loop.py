"""The event loop of a worker: pyfuse3's session loop driven by poll(2) instead of trio.

Under trio every small request spends two thirds of its time in the scheduler, so a worker replaces it (`stand_in`). A
*session coroutine* of pyfuse3 waits for the descriptor, reads one request, runs its handler, and waits again. `run`
polls, and steps one of them for each request.

- A handler that does not suspend is answered in that same step.
- `await offload(share, function, ...)` *parks* its session coroutine: the function runs in a thread of a pool (`pool`),
  its end arrives through an eventfd in the same poll, and meanwhile other session coroutines serve other requests.
  pyfuse3 makes another session coroutine whenever none is waiting, up to `SESSION_TASKS`, so at most that many are
  parked. This is more than a pool lets wait for files that do not answer. A parked coroutine takes some 10 KB.
- `await offload_control(share, function, ...)` uses a pool of its own, so that requests for the state store and
  requests for data do not wait for each other.
- Several workers on one descriptor race for each request. The loser of a race would get EAGAIN (the descriptor does
  not block), on which pyfuse3's session coroutine raises and leaks its buffer. So a lock protects reading: poll, take
  the lock, poll again without waiting, read, release the lock at the entry of the handler (`entered`). It is an flock,
  because the kernel releases it when its owner dies. Taking it *waits*: it is locked for microseconds, and a worker
  that only tried would spin as long as another one reads (the prototype: 400,000 failed tries in 20 s).
- When no request waits, the loop polls for the next one for a while before it sleeps, if that is worth it (`spinning`),
  and chooses its processor (`placement`). Without room to spin it sleeps at once: one poll a request.
- EAGAIN still occurs if a request is withdrawn between poll and read. A new session coroutine takes over; this is
  counted.

The loop writes the time since when it is busy to a cell that the supervisor watches. It ends when the session ends, or
when it has *drained*: then it takes no more requests, and answers those that are parked. If the kernel can resend
requests, those that hang are left to the next worker.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
from collections import deque
from collections.abc import Callable, Coroutine
from time import monotonic_ns
from typing import Any

import pyfuse3

from touchfs.errors import TouchfsError
from touchfs_mount.loop.offload import CONTROL_LIMITS, DATA_LIMITS, Offload
from touchfs_mount.loop.placement import Placement
from touchfs_mount.loop.pool import Call, Pool, PoolLimits
from touchfs_mount.loop.spinning import Spinning
from touchfs_mount.loop.stand_in import in_place_of_trio
from touchfs_mount.requests.strikes import IN_CONTROL_THREAD, IN_DATA_THREAD, ON_LOOP, Strikes

SESSION_TASKS = 4096
# The interval of `Pool.tick` while a pool is busy.
TICK_MS = 100

# A worker's counters, 64-bit cells in memory shared with the supervisor. Only the worker writes them, so there is no
# lock. BUSY_SINCE is CLOCK_MONOTONIC in ns, 0 while it waits, ALL_PARKED while it can take no more requests. FAILURES
# counts the requests that failed by a bug of ours, LATE_REPLIES the replies to requests that were resent and already
# answered. PARKED is how many requests are parked now.
ALL_PARKED = -1
BUSY_SINCE, REQUESTS, LOST_RACES, FAILURES, LATE_REPLIES, PARKED = range(6)
CELLS = 6
# The interval at which a worker decides where it runs.
LOOK_NS = 50_000_000

SessionCoroutine = Coroutine[Any, Any, None]


class Loop:
    """One worker's loop over the FUSE descriptor, which must be non-blocking.

    `read_lock` is a descriptor for flock, opened after the fork, or None for a single worker. End of file on `lifeline`
    means that the supervisor is gone: `orphaned` is called once, and the loop continues until the session ends. When
    `drain` becomes readable, the loop drains. In `running` it notes the keys of the requests that run (`strikes`).
    """

    def __init__(
        self,
        descriptor: int,
        counters: memoryview[int],
        *,
        read_lock: int | None = None,
        lifeline: int | None = None,
        drain: int | None = None,
        running: memoryview[int] | None = None,
        data_limits: PoolLimits = DATA_LIMITS,
        leaves_hanging: bool = True,
        orphaned: Callable[[], None] | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._counters = counters
        self._read_lock = read_lock
        self._holds_lock = False
        self._drain = drain
        self._spinning, self._look_at = Spinning(), 0
        self._placement = Placement(follows=read_lock is None)
        # To be called with the thread of a reader that opens a file.
        self.opened = self._placement.opened
        self._leaves_hanging = leaves_hanging
        self._draining = False
        self._parked = self._tick_at = self._busy_since = 0
        self._orphaned = orphaned
        self._running = Strikes(1).running(0) if running is None else running
        self._pools = (
            Pool(self._finish, self._running[IN_DATA_THREAD:IN_CONTROL_THREAD], data_limits),
            Pool(self._finish, self._running[IN_CONTROL_THREAD:], CONTROL_LIMITS),
        )
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._finished: deque[Call] = deque()
        self._waiting: list[SessionCoroutine] = []
        self._poll, self._poll_request, self._poll_parked = select.poll(), select.poll(), select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._poll_request.register(descriptor, select.POLLIN)
        for watched in (self._wake, lifeline, drain):
            if watched is not None:
                self._poll.register(watched, select.POLLIN)
                self._poll_parked.register(watched, select.POLLIN)

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Serve requests until the session ends (the file system is unmounted), or the loop has drained, or `until` is
        true after one of them.
        """
        with in_place_of_trio(self):
            try:
                self._start_session()
                while not (self._draining and self.drained) and self._turn() and not until():
                    pass
            finally:
                self.entered()
                for coroutine in self._waiting:
                    coroutine.close()
                self._placement.free()
                self._spinning.close()
                if not self._parked:  # otherwise a thread may still write to it
                    os.close(self._wake)

    @property
    def drained(self) -> bool:
        """True if the loop is to drain, and has answered all its requests except those that it leaves."""
        if not self._draining:
            return False
        left = sum(len(pool.hanging) for pool in self._pools) if self._leaves_hanging else 0
        return self._parked <= left

    def entered(self) -> None:
        """Release the read lock. Every handler calls this first: its request is read, so another worker may read the
        next one.
        """
        if self._holds_lock:
            self._holds_lock = False
            fcntl.flock(self._read_lock, fcntl.LOCK_UN)  # type: ignore[arg-type]

    def _turn(self) -> bool:
        """Wait for events and handle them. False when the session has ended."""
        counters = self._counters
        # With all session coroutines parked, requests stay in the kernel until one of them ends.
        takes_more = self._waiting and not self._draining
        counters[BUSY_SINCE] = 0 if takes_more else ALL_PARKED
        events = self._next_events(self._poll if takes_more else self._poll_parked)
        counters[BUSY_SINCE] = self._busy_since = now = monotonic_ns()
        if now >= self._look_at:
            self._look_at = now + LOOK_NS
            self._placement.look(may_follow=not (self._spinning.has_room or self._parked))
        for descriptor, _ in events:
            if descriptor == self._descriptor:
                if self._read_lock is None or self._may_read():
                    counters[REQUESTS] += 1
                    alive = self._step(self._waiting.pop(), None)
                    if self._holds_lock:
                        self.entered()
                    if not alive:
                        return False
            elif descriptor == self._wake:
                os.eventfd_read(self._wake)
                while self._finished:
                    call = self._finished.popleft()
                    self._pools[call.token[0]].end(call)
                    if not call.is_given_up and not self._resume(call):
                        return False
            else:
                self._poll.unregister(descriptor)
                self._poll_parked.unregister(descriptor)
                if descriptor == self._drain:
                    self._draining = True
                elif self._orphaned is not None:
                    self._orphaned()
        if self._parked and (now := monotonic_ns()) > self._tick_at:
            self._tick_at = now + TICK_MS * 1_000_000
            return all(self._resume(call) for pool in self._pools for call in pool.tick())
        return True

    def _next_events(self, poll: select.poll) -> list[tuple[int, int]]:
        """Wait for events. First poll without sleeping: a program that was just answered often sends the next request
        at once, and waking up takes longer than answering it.
        """
        spinning = self._spinning
        may_pay = spinning.has_room or self._busy_since >= spinning.sample_at
        if may_pay and not any(pool.is_working for pool in self._pools):  # otherwise the threads need the interpreter
            events = poll.poll(0) or spinning.poll(poll, self._placement.readers)
            if events:
                return events
        events = poll.poll(None if self._placement.is_free and not self._parked else TICK_MS)
        if not events:
            self._placement.free()
        return events

    def _may_read(self) -> bool:
        fcntl.flock(self._read_lock, fcntl.LOCK_EX)  # type: ignore[arg-type]
        self._holds_lock = True
        if self._poll_request.poll(0):
            return True
        self.entered()
        return False

    def _step(self, coroutine: SessionCoroutine, result: Any, error: BaseException | None = None) -> bool:
        """Run a session coroutine until it waits or parks. False if it has ended, because the session has."""
        try:
            awaited = coroutine.send(result) if error is None else coroutine.throw(error)
        except StopIteration:
            return False
        except OSError as failure:
            if failure.errno == errno.ECONNABORTED:  # for example after `umount -f`
                return False
            if failure.errno != errno.EAGAIN:
                raise
            self._counters[LOST_RACES] += 1
            if not self._waiting:
                self._start_session()
            return True
        if awaited is None:
            self._waiting.append(coroutine)
            return True
        return self._park(coroutine, awaited)

    def _park(self, coroutine: SessionCoroutine, awaited: Offload) -> bool:
        self._placement.free()  # the pool may make a thread, which inherits the processors of this one
        key, self._running[ON_LOOP] = self._running[ON_LOOP], 0
        call = Call(awaited.share, awaited.function, awaited.arguments, (awaited.pool, coroutine), key)
        try:
            self._pools[awaited.pool].submit(call)
        except TouchfsError as error:
            return self._step(coroutine, None, error)
        self._parked += 1
        self._counters[PARKED] = self._parked
        return True

    def _resume(self, call: Call) -> bool:
        self._parked -= 1
        self._counters[PARKED] = self._parked
        self._running[ON_LOOP] = call.key
        return self._step(call.token[1], call.result, call.error)

    def _finish(self, call: Call) -> None:
        """Hand a call back to the loop. Called in a thread of a pool."""
        self._finished.append(call)
        os.eventfd_write(self._wake, 1)

    def _start_session(self) -> None:
        """Make pyfuse3 start a session coroutine. It uses this object as its nursery."""
        with contextlib.suppress(StopIteration):
            pyfuse3.main(SESSION_TASKS, SESSION_TASKS).send(None)

    async def __aenter__(self) -> Loop:
        return self

    async def __aexit__(self, *exception: object) -> None: ...

    def start_soon(self, function: Callable[..., SessionCoroutine], *arguments: Any, name: str = "") -> None:
        """`Nursery.start_soon` for pyfuse3: start a session coroutine."""
        # Step it to its wait at once: pyfuse3 then counts it as waiting, and makes no other before this one is used.
        coroutine = function(*arguments)
        with contextlib.suppress(StopIteration):  # it ends at once if the session has just ended
            coroutine.send(None)
            self._waiting.append(coroutine)
