"""Calls that may wait for a file, on few threads, so that those which wait for ever hold up nobody else.

Each call belongs to a *share*: a shard, whose files may be on a file system that does not answer. A share has at most
`share_threads` threads at once, and shares take turns. A running call cannot be ended from outside. So one that has run
for `HUNG_SECONDS` is *written off*: its thread no longer counts as one of those that work, and another one does its
part. There are never more than `threads_max`. When they are all taken, calls of shares that do not answer are refused
at once, and so they are when `WAITING_MAX` calls wait. The last `RESERVED` threads of either number are kept for shares
that answer: the last call of theirs that ended took no longer than `HUNG_SECONDS`, and none hangs.

All of it is for the loop's thread, without a lock. Threads take calls from a queue, and hand them back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import takewhile
from queue import SimpleQueue
from time import monotonic
from typing import Any

from touchfs.errors import SourceTimeoutError, TouchfsError

HUNG_SECONDS = 0.5
RESERVED = 4
WAITING_MAX = 2048
DATA_THREADS, CONTROL_THREADS = 256, 64
_ANSWERING_KEPT = 4096


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Threads that work at once, in all and for one share, and threads with those that are written off. Of calls that
    hang, or wait behind such, no more than `hanging_max` are kept waiting.

    A call is given up `timeout_seconds` after it was asked for, whatever becomes of it; with `only_waiting` only one
    that has not begun by then. The error of what is given up or refused is a `error_class`.
    """

    threads: int = 16
    share_threads: int = 8
    threads_max: int = DATA_THREADS
    hanging_max: int = WAITING_MAX
    timeout_seconds: float | None = None
    only_waiting: bool = False
    error_class: type[TouchfsError] = SourceTimeoutError


DEFAULT = PoolLimits()


class Call:
    """A call of a function, until it has a `result` or an `error`. `key` is that of the request it is for (`strikes`),
    `token` is the caller's.
    """

    __slots__ = (
        *("arguments", "error", "function", "key", "result", "share", "token"),
        *("asked", "began", "is_doubtful", "is_given_up"),
    )

    def __init__(
        self, share: Hashable, function: Callable[..., Any], arguments: tuple[Any, ...], token: Any, key: int = 0
    ) -> None:
        self.share = share
        self.key = key
        self.function = function
        self.arguments = arguments
        self.token = token
        self.result: Any = None
        self.error: BaseException | None = None
        self.asked = monotonic()
        self.began = 0.0
        self.is_doubtful = False
        self.is_given_up = False

    def run(self, running: memoryview[int], place: int) -> None:
        """Call it, with its key noted at a place as long as it runs."""
        running[place] = self.key
        try:
            self.result = self.function(*self.arguments)
        except BaseException as error:  # noqa: BLE001  the caller's, whatever it is
            self.error = error
        finally:
            running[place] = 0


class _Share:
    __slots__ = ("hung", "running", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Call] = deque()
        self.running = 0
        self.hung = 0


class Pool:
    """`finished` is called in a thread with each call that has ended; the loop's thread then calls `end` with it.
    Each thread has a place in `running` for the key of the call that it runs.

    `tick` is to be called several times a second while the pool is busy: by it time passes.
    """

    def __init__(
        self, finished: Callable[[Call], None], running: memoryview[int], limits: PoolLimits = DEFAULT
    ) -> None:
        self._finished = finished
        self._running = running
        self._limits = limits
        self._queue: SimpleQueue[Call] = SimpleQueue()
        self._threads = 0
        self._shares: dict[Hashable, _Share] = {}
        self._answering: dict[Hashable, None] = {}
        # All calls that are not answered, then those of them that run, both in the order in which they came to that.
        self._calls: dict[Call, None] = {}
        self._working: dict[Call, None] = {}
        self._hung: set[Call] = set()
        self._doubtful = 0
        self._ready: tuple[dict[Hashable, None], dict[Hashable, None]] = {}, {}  # of shares that answer, and of others

    @property
    def is_idle(self) -> bool:
        return not self._calls

    @property
    def is_working(self) -> bool:
        """Whether threads have calls that may end soon: none that is written off."""
        return bool(self._working)

    @property
    def hanging(self) -> list[Call]:
        """The calls that are not answered and may never be: they hang, or wait behind some that do."""
        return [call for call in self._calls if self._shares[call.share].hung]

    def submit(self, call: Call) -> None:
        """Raises the error of what is refused, where too much hangs already."""
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

    def end(self, call: Call) -> None:
        """The thread that ran it is free. A call that was given up has been answered before."""
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

    def tick(self) -> list[Call]:
        """The calls that are given up by now, with their error."""
        self._notice_hung()
        given_up = [self._give_up(call, self._timeout()) for call in self._overdue()]
        given_up += [self._give_up(call, self._refusal()) for call in self.hanging[self._limits.hanging_max :]]
        if self._is_full():
            stranded = [call for key in self._ready[1] for call in self._shares[key].waiting]
            given_up += [self._give_up(call, self._refusal()) for call in stranded]
        self._begin()
        return given_up

    def _overdue(self) -> list[Call]:
        seconds, only_waiting = self._limits.timeout_seconds, self._limits.only_waiting
        if seconds is None:
            return []
        until = monotonic() - seconds
        late = takewhile(lambda call: call.asked <= until, self._calls)
        return [call for call in late if not (only_waiting and call.began)]

    def _timeout(self) -> TouchfsError:
        return self._limits.error_class(f"no answer within {self._limits.timeout_seconds:g} s")

    def _refusal(self) -> TouchfsError:
        return self._limits.error_class("too much waits for what does not answer: is its file system there?")

    def _give_up(self, call: Call, error: TouchfsError) -> Call:
        del self._calls[call]
        if not call.began:
            share = self._shares[call.share]
            share.waiting.remove(call)
            self._offer(call.share, share)
        call.is_given_up = True
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
        """For shares of which it is not known that they answer."""
        taken = len(self._working) + len(self._hung)
        return taken >= self._limits.threads_max - RESERVED or len(self._calls) >= WAITING_MAX

    def _offer(self, key: Hashable, share: _Share) -> None:
        """Note whether a call of this share may begin, and forget a share that has none."""
        may_begin = bool(share.waiting) and share.running < self._limits.share_threads
        for doubtful, ready in enumerate(self._ready):
            if may_begin and doubtful == (key not in self._answering):
                ready.setdefault(key)
            else:
                ready.pop(key, None)
        if not share.waiting and not share.running:
            del self._shares[key]

    def _begin(self) -> None:
        """Begin what may begin: in turn a share that answers and one of which that is not known."""
        begun = True
        while begun:
            begun = False
            for doubtful, ready in enumerate(self._ready):
                if ready and self._has_thread(bool(doubtful)):
                    key = next(iter(ready))
                    del ready[key]
                    self._run(key, bool(doubtful))
                    begun = True

    def _has_thread(self, doubtful: bool) -> bool:
        limits, taken = self._limits, len(self._working) + len(self._hung)
        if doubtful and (self._doubtful >= limits.threads - RESERVED or taken >= limits.threads_max - RESERVED):
            return False
        return len(self._working) < limits.threads and taken < limits.threads_max

    def _run(self, key: Hashable, doubtful: bool) -> None:
        share = self._shares[key]
        call = share.waiting.popleft()
        call.began = monotonic()
        call.is_doubtful = doubtful
        self._doubtful += doubtful
        share.running += 1
        self._working[call] = None
        if len(self._working) + len(self._hung) > self._threads:
            self._threads += 1
            place = self._threads - 1
            threading.Thread(target=self._serve, args=(place,), name=f"pool-{self._threads}", daemon=True).start()
        self._queue.put(call)
        self._offer(key, share)

    def _serve(self, place: int) -> None:
        while True:
            call = self._queue.get()
            call.run(self._running, place)
            self._finished(call)
