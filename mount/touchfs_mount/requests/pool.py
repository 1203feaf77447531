"""A thread pool for calls that may block on a file. Calls that block for ever do not delay others.

Each call belongs to a *share*, usually a shard: its files may be on a file system that does not answer. A share has at
most `share_threads` threads at a time, and shares take turns. A running call cannot be cancelled. So a call that has
run for `HUNG_SECONDS` is *hung*: its thread no longer counts as working, and another thread takes over. There are never
more than `threads_max` threads. If all are taken, or if `WAITING_MAX` calls wait, new calls of shares that do not
answer are refused at once. The last `RESERVED` threads, both of the working ones and of all, are kept for shares that
answer: the last call of such a share to end took less than `HUNG_SECONDS`, and none of its calls is hung.

A call answers its request by itself. The thread that submits calls, and that of `tick`, never wait for one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import takewhile
from queue import SimpleQueue
from time import monotonic
from typing import Any

from touchfs.core.errors import SourceError, SourceTimeoutError, TouchfsError
from touchfs.posix.threads import start_thread

log = logging.getLogger(__name__)

HUNG_SECONDS = 0.5
RESERVED = 4
WAITING_MAX = 2048
THREADS = 256
_ANSWERING_KEPT = 4096
_LACK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of a pool.

    `threads` is the number of working threads, `share_threads` the number for one share, and `threads_max` the total
    with hung threads. At most `hanging_max` calls that are hung, or wait behind hung ones, are kept waiting.

    A call fails `timeout_seconds` after it was submitted, even if its thread continues.
    """

    threads: int = 16
    share_threads: int = 8
    threads_max: int = THREADS
    hanging_max: int = WAITING_MAX
    timeout_seconds: float | None = None


DEFAULT = PoolLimits()


class Call:
    """A call of a function. `key` says what its request asks for (`strikes`). `error` is set if it was given up."""

    __slots__ = (
        *("argument", "error", "function", "key", "share"),
        *("submitted", "began", "is_doubtful"),
    )

    def __init__(self, share: Hashable, function: Callable[[Any], None], argument: Any, key: int = 0) -> None:
        self.share = share
        self.key = key
        self.function = function
        self.argument = argument
        self.error: TouchfsError | None = None
        self.submitted = monotonic()
        self.began = 0.0
        self.is_doubtful = False

    def run(self, running: memoryview[int], place: int) -> None:
        """Call the function. While it runs, its key is in `running[place]`."""
        running[place] = self.key
        try:
            self.function(self.argument)
        finally:
            running[place] = 0


class _Share:
    __slots__ = ("hung", "running", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Call] = deque()
        self.running = 0
        self.hung = 0


class Pool:
    """A pool of threads. Each has a place in `running` for the key of the call that it runs.

    While the pool is busy, `tick` must be called several times a second: it detects hung calls and timeouts.
    """

    def __init__(self, running: memoryview[int], limits: PoolLimits = DEFAULT) -> None:
        self._running = running
        self._lock = threading.Lock()
        self._limits = limits
        self._queue: SimpleQueue[Call] = SimpleQueue()
        self._threads = 0
        # Why the last thread was not started, and when to try again.
        self._lack: SourceError | None = None
        self._starts_again = 0.0
        self._shares: dict[Hashable, _Share] = {}
        self._answering: dict[Hashable, None] = {}
        # All unanswered calls in the order of submission; those that run and are not hung, in the order of beginning.
        self._calls: dict[Call, None] = {}
        self._working: dict[Call, None] = {}
        self._hung: set[Call] = set()
        self._doubtful = 0
        # Shares with a call that may begin: those that answer, and the others, which are called doubtful.
        self._ready: tuple[dict[Hashable, None], dict[Hashable, None]] = {}, {}
        self._turn = False  # of the doubtful ones

    @property
    def is_idle(self) -> bool:
        return not self._calls

    @property
    def calls(self) -> list[Call]:
        with self._lock:
            return list(self._calls)

    @property
    def unanswered(self) -> int:
        """How many calls are unanswered."""
        return len(self._calls)

    @property
    def hanging(self) -> list[Call]:
        """The unanswered calls that may never end: they are hung, or wait behind hung ones."""
        with self._lock:
            return self._hanging()

    def submit(self, call: Call) -> None:
        """Add a call. Raises SourceTimeoutError if it is refused, because too many calls hang already, and SourceError
        if there is no thread for it.
        """
        with self._lock:
            self._submit(call)

    def tick(self) -> list[Call]:
        """Detect hung calls and timeouts. Returns the calls that were given up now, with their errors."""
        with self._lock:
            return self._tick()

    def _hanging(self) -> list[Call]:
        return [call for call in self._calls if self._shares[call.share].hung]

    def _submit(self, call: Call) -> None:
        self._notice_hung()
        share = self._shares.get(call.share)
        if call.share not in self._answering and self._is_full():
            raise self._refusal()
        if share is None:
            share = self._shares[call.share] = _Share()
        share.waiting.append(call)
        self._calls[call] = None
        self._offer(call.share, share)
        self._begin()
        if self._lack is not None and not call.began and self._is_starved():
            self._give_up(call, self._lack)
            raise self._lack

    def _end(self, call: Call) -> None:
        share = self._shares[call.share]
        share.running -= 1
        if call in self._hung:
            self._hung.remove(call)
            share.hung -= 1
        else:
            self._stop_working(call)
        if not share.hung and monotonic() - call.began < HUNG_SECONDS:
            self._answering[call.share] = None
            if len(self._answering) > _ANSWERING_KEPT:
                del self._answering[next(iter(self._answering))]
        self._calls.pop(call, None)
        self._offer(call.share, share)
        self._begin()

    def _tick(self) -> list[Call]:
        self._notice_hung()
        given_up = [self._give_up(call, self._timeout()) for call in self._overdue()]
        given_up += [self._give_up(call, self._refusal()) for call in self._hanging()[self._limits.hanging_max :]]
        if self._is_full():
            stranded = [call for key in self._ready[1] for call in self._shares[key].waiting]
            given_up += [self._give_up(call, self._refusal()) for call in stranded]
        self._begin()
        if self._lack is not None and self._is_starved():
            starved = [call for ready in self._ready for key in ready for call in self._shares[key].waiting]
            given_up += [self._give_up(call, self._lack) for call in starved]
        return given_up

    def _overdue(self) -> list[Call]:
        seconds = self._limits.timeout_seconds
        if seconds is None:
            return []
        until = monotonic() - seconds
        return list(takewhile(lambda call: call.submitted <= until, self._calls))

    def _timeout(self) -> TouchfsError:
        return SourceTimeoutError(f"no answer within {self._limits.timeout_seconds:g} s")

    def _refusal(self) -> TouchfsError:
        return SourceTimeoutError("too many reads wait for a source that does not answer: is its file system up?")

    def _give_up(self, call: Call, error: TouchfsError) -> Call:
        del self._calls[call]
        if not call.began:
            share = self._shares[call.share]
            share.waiting.remove(call)
            self._offer(call.share, share)
        call.error = error
        return call

    def _notice_hung(self) -> None:
        before = monotonic() - HUNG_SECONDS
        while (call := next(iter(self._working), None)) is not None and call.began < before:
            self._stop_working(call)
            self._hung.add(call)
            share = self._shares[call.share]
            share.hung += 1
            self._answering.pop(call.share, None)
            self._offer(call.share, share)

    def _stop_working(self, call: Call) -> None:
        del self._working[call]
        self._doubtful -= call.is_doubtful

    def _is_full(self) -> bool:
        """True if a call of a doubtful share must be refused."""
        taken = len(self._working) + len(self._hung)
        return taken >= self._limits.threads_max - RESERVED or len(self._calls) >= WAITING_MAX

    def _offer(self, key: Hashable, share: _Share) -> None:
        """Update whether a call of this share may begin, and remove a share without calls."""
        may_begin = bool(share.waiting) and share.running < self._limits.share_threads
        for doubtful, ready in enumerate(self._ready):
            if may_begin and doubtful == (key not in self._answering):
                ready.setdefault(key)
            else:
                ready.pop(key, None)
        if not share.waiting and not share.running:
            del self._shares[key]

    def _begin(self) -> None:
        """Begin all calls that may begin, in turn of a share that answers and of a doubtful one."""
        while any(self._begin_one(doubtful) for doubtful in (self._turn, not self._turn)):
            pass

    def _begin_one(self, doubtful: bool) -> bool:
        """Begin a call of a share that is doubtful, or of one that is not. The others have the next turn."""
        ready = self._ready[doubtful]
        if not ready or not self._has_thread(doubtful):
            return False
        key = next(iter(ready))
        del ready[key]
        self._run(key, doubtful)
        self._turn = not doubtful
        return True

    def _has_thread(self, doubtful: bool) -> bool:
        limits, taken = self._limits, len(self._working) + len(self._hung)
        if doubtful and (self._doubtful >= limits.threads - RESERVED or taken >= limits.threads_max - RESERVED):
            return False
        if len(self._working) >= limits.threads or taken >= limits.threads_max:
            return False
        return taken < self._threads or self._has_started_thread()

    def _has_started_thread(self) -> bool:
        """Start a thread. False if the system starts none: it is asked again a while later."""
        if self._lack is not None and monotonic() < self._starts_again:
            return False
        try:
            start_thread(self._serve, self._threads, name=f"pool-{self._threads + 1}")
        except SourceError as error:
            if self._lack is None:
                log.warning("%s: %d serve these calls", error, self._threads)
            self._lack, self._starts_again = error, monotonic() + _LACK_SECONDS
            return False
        self._lack = None
        self._threads += 1
        return True

    def _is_starved(self) -> bool:
        """True if no thread can be started, and all that there are hang."""
        return not self._working and monotonic() < self._starts_again

    def _run(self, key: Hashable, doubtful: bool) -> None:
        share = self._shares[key]
        call = share.waiting.popleft()
        call.began = monotonic()
        call.is_doubtful = doubtful
        self._doubtful += doubtful
        share.running += 1
        self._working[call] = None
        self._queue.put(call)
        self._offer(key, share)

    def _serve(self, place: int) -> None:
        while True:
            call = self._queue.get()
            try:
                call.run(self._running, place)
            except Exception:
                log.exception("a thread could not answer")
            with self._lock:
                self._end(call)
