"""The event loop of a worker: pyfuse3's session loop driven by poll(2) instead of trio.

Under trio every small request spends two thirds of its time in the scheduler. pyfuse3 looks up its event library at run
time (its own asyncio mode relies on that), so a worker replaces it by an object with the few names that the session
loop calls. A *session coroutine* of pyfuse3 waits for the descriptor, reads one request, runs its handler to the end,
and waits again. `run` polls, and steps one of them for each request.

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
- When no request waits, the loop calls `begin_idle`, then polls for the next request for a while (`SPIN_NS`). A program
  that was just answered needs some 25 µs to wake up and send the next request, so the work of `begin_idle` delays no
  one. `end_idle` is called after the next request, or before the loop sleeps. While a thread runs a call of the control
  directory, also a hung one, neither is called.
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
import time
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from typing import Any, TypeVar

import pyfuse3

from touchfs.errors import StateError, TouchfsError
from touchfs_mount.loop.pool import CONTROL_THREADS, Call, Pool, PoolLimits
from touchfs_mount.requests.strikes import IN_CONTROL_THREAD, IN_DATA_THREAD, ON_LOOP, Strikes

SESSION_TASKS = 4096
# The interval of `Pool.tick` while a pool is busy.
TICK_MS = 100

# The pools for data and for the control directory. A step that has begun never times out: it may still happen.
DATA, CONTROL = 0, 1
DATA_LIMITS = PoolLimits()
CONTROL_LIMITS = PoolLimits(
    threads=8,
    share_threads=8,
    threads_max=CONTROL_THREADS,
    timeout_seconds=30,
    only_waiting=True,
    error_class=StateError,
)

# A worker's counters, 64-bit cells in memory shared with the supervisor. Only the worker writes them, so there is no
# lock. BUSY_SINCE is CLOCK_MONOTONIC in ns, 0 while it waits, ALL_PARKED while it can take no more requests. FAILURES
# counts the requests that failed by a bug of ours, LATE_REPLIES the replies to requests that were resent and already
# answered.
ALL_PARKED = -1
BUSY_SINCE, REQUESTS, LOST_RACES, FAILURES, LATE_REPLIES = range(5)
CELLS = 5

# A worker polls this long for the next request before it sleeps. On an idle virtual machine this makes successive opens
# and small reads 1.4 to 1.9 times as fast, because its processors are halted when they have nothing to do. It costs as
# much processor time after each request that no other follows at once.
SPIN_NS = 50_000

T = TypeVar("T")
SessionCoroutine = Coroutine[Any, Any, None]


class _Offload:
    """The awaitable on which a session coroutine parks: a call for a pool."""

    __slots__ = ("arguments", "function", "pool", "share")

    def __init__(self, pool: int, share: Hashable, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.pool = pool
        self.share = share
        self.function = function
        self.arguments = arguments

    def __await__(self) -> Generator[_Offload, Any, Any]:
        return (yield self)


def offload(share: Hashable, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
    """Run a function that may block on data in a thread. Only for coroutines that a `Loop` drives."""
    return _Offload(DATA, share, function, arguments)


def offload_control(share: Hashable, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
    """The same for a function that may block on the state store. Reads must use another share than writes."""
    return _Offload(CONTROL, share, function, arguments)


class _NoLock:
    """Replaces `trio.Lock`: only one session coroutine is stepped at a time anyway."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *exception: object) -> None: ...


def _nothing() -> None: ...


class _SessionEndedError(Exception):
    """Replaces `trio.ClosedResourceError`, which our descriptor never raises."""


@types.coroutine
def _wait_readable(descriptor: int) -> Generator[None, None, None]:
    yield


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
        begin_idle: Callable[[], None] = _nothing,
        end_idle: Callable[[], None] = _nothing,
    ) -> None:
        self._descriptor = descriptor
        self._counters = counters
        self._read_lock = read_lock
        self._holds_lock = False
        self._drain = drain
        self._leaves_hanging = leaves_hanging
        self._draining = False
        self._parked = self._tick_at = 0
        self._orphaned = orphaned
        self._begin_idle, self._end_idle, self._is_idle = begin_idle, end_idle, False
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
        namespace = types.SimpleNamespace
        task = namespace(name="session")
        replacement = namespace(
            Lock=_NoLock,
            ClosedResourceError=_SessionEndedError,
            open_nursery=lambda: self,
            lowlevel=namespace(
                current_task=lambda: task,
                current_trio_token=lambda: None,
                notify_closing=lambda descriptor: None,
                wait_readable=_wait_readable,
            ),
        )
        library = vars(pyfuse3)["trio"]
        vars(pyfuse3)["trio"] = replacement
        try:
            self._start_session()
            while not self.drained and self._turn() and not until():
                pass
        finally:
            self.entered()
            for coroutine in self._waiting:
                coroutine.close()
            if not self._parked:  # otherwise a thread may still write to it
                os.close(self._wake)
            vars(pyfuse3)["trio"] = library

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
        counters[BUSY_SINCE] = time.monotonic_ns()
        for descriptor, _ in events:
            if descriptor == self._descriptor:
                if self._may_read():
                    counters[REQUESTS] += 1
                    alive = self._step(self._waiting.pop(), None)
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
        if self._parked and (now := time.monotonic_ns()) > self._tick_at:
            self._tick_at = now + TICK_MS * 1_000_000
            return all(self._resume(call) for pool in self._pools for call in pool.tick())
        return True

    def _next_events(self, poll: select.poll) -> list[tuple[int, int]]:
        """Wait for events. First poll without sleeping: a program that was just answered often sends the next request
        at once, and waking up takes longer than answering it.
        """
        if self._is_idle:
            self._is_idle = False
            self._end_idle()
        data, control = self._pools
        if not (data.is_working or control.is_working):  # otherwise the threads need the interpreter
            if events := poll.poll(0):
                return events
            # A hung call of the control directory may go on at any time, and uses the same iterators as `begin_idle`.
            self._is_idle = not control.is_running
            if self._is_idle:
                self._begin_idle()
            until = time.monotonic_ns() + SPIN_NS
            while time.monotonic_ns() < until:
                if events := poll.poll(0):
                    return events
            if self._is_idle:
                self._is_idle = False
                self._end_idle()
        return poll.poll(TICK_MS if self._parked else None)

    def _may_read(self) -> bool:
        if self._read_lock is None:
            return True
        fcntl.flock(self._read_lock, fcntl.LOCK_EX)
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

    def _park(self, coroutine: SessionCoroutine, awaited: _Offload) -> bool:
        key, self._running[ON_LOOP] = self._running[ON_LOOP], 0
        call = Call(awaited.share, awaited.function, awaited.arguments, (awaited.pool, coroutine), key)
        try:
            self._pools[awaited.pool].submit(call)
        except TouchfsError as error:
            return self._step(coroutine, None, error)
        self._parked += 1
        return True

    def _resume(self, call: Call) -> bool:
        self._parked -= 1
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
