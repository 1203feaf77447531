"""The process that runs requests with a strike (`strikes`), so that no other one dies or waits with them.

It gets each message as the kernel sent it, and answers the kernel by itself. It runs one request after the other: a
request that kills does so soon, so the next one begins when the one before has ended, or goes on for `ALONE_SECONDS`.
What it has answered was not to blame, and loses its strike. One that runs when this process dies three times is refused
for a while (`Strikes.ended`).
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from time import monotonic_ns

from touchfs_mount.messages.requests import BUFFER_SIZE, Request, parse
from touchfs_mount.numbers.cells import BUSY_SINCE, REQUESTS
from touchfs_mount.requests.interrupts import Interrupts
from touchfs_mount.requests.pool import Call, Pool
from touchfs_mount.requests.replies import Replies
from touchfs_mount.requests.server import TICK_SECONDS, Worker
from touchfs_mount.requests.tree_answers import TreeAnswers

ALONE_SECONDS = 0.2


class Alone:
    """Runs the requests that come through the door. `answers` may wait."""

    def __init__(
        self,
        door: socket.socket,
        worker: Worker,
        answers: TreeAnswers,
        pool: Pool,
        replies: Replies,
        interrupts: Interrupts,
        orphaned: Callable[[], None],
    ) -> None:
        self._door = door
        self._counters = worker.counters
        self._strikes = worker.strikes
        self._drain = worker.drain
        self._answers = answers
        self._pool = pool
        self._replies = replies
        self._interrupts = interrupts
        self._orphaned = orphaned
        self._poll = select.poll()
        for watched in (door.fileno(), worker.lifeline, worker.drain):
            self._poll.register(watched, select.POLLIN)

    def run(self) -> None:
        """Run requests until this process is to be replaced. What it has not answered is sent again."""
        while True:
            # While threads run, it is busy since the last turn: C code that holds the interpreter for ever is stuck.
            self._counters[BUSY_SINCE] = 0 if self._pool.is_idle else monotonic_ns()
            for descriptor, _ in self._poll.poll(None if self._pool.is_idle else TICK_SECONDS * 1000):
                if descriptor == self._drain:
                    return
                if descriptor == self._door.fileno():
                    self._run(parse(self._door.recv(BUFFER_SIZE)))
                else:
                    self._poll.unregister(descriptor)
                    self._orphaned()
            self._interrupts.end()
            for call in self._pool.tick():
                request, began, _ = call.argument
                if call.error is not None:
                    self._replies.fail(request, call.error, began)

    def _run(self, request: Request) -> None:
        self._counters[BUSY_SINCE] = began = monotonic_ns()
        self._counters[REQUESTS] += 1
        answered = threading.Event()
        # Each is a share of its own: a request that waits holds up no other one.
        self._pool.submit(Call(request.unique, self._answer, (request, began, answered), request.key))
        answered.wait(ALONE_SECONDS)

    def _answer(self, argument: tuple[Request, int, threading.Event]) -> None:
        request, began, answered = argument
        self._replies.answer(request, self._answers, began)
        self._strikes.forgive(request.key)
        answered.set()
