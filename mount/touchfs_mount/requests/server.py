"""Serves a connection: takes the kernel's requests, and answers them or hands them on.

What cannot wait is answered at once. What may wait, for a file or because it decodes a recording, goes to a thread of a
pool (`pool`), which answers the kernel by itself. So the thread that takes requests never waits for data.

- The kernel is told once, by ENOSYS, that it need not ask for opens, and for whatever else is not known here.
- A request whose caller is killed is ended at once (`interrupts`). Its thread goes on, and answers nobody.
- A request with a strike (`strikes`) is handed on as it came, to the process that runs only these (`alone`).
- When a worker is to be replaced, it *drains*: it takes no more requests, answers those that it has, and ends. If the
  kernel can send requests once more, those that hang are left to the next worker.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns

from touchfs.core.errors import FormatError, SourceError, TouchfsError
from touchfs.tree.inode import unpack
from touchfs.tree.open_shards import WouldBlockError
from touchfs_mount.messages.requests import Opcode, Request, parse
from touchfs_mount.numbers.cells import BUSY_SINCE, LOST_RACES, PARKED, REQUESTS
from touchfs_mount.numbers.slots import Slot
from touchfs_mount.requests.connection import EndedError, KernelConnection
from touchfs_mount.requests.interrupts import Interrupts
from touchfs_mount.requests.pool import Call, Pool
from touchfs_mount.requests.replies import COUNTED, Replies
from touchfs_mount.requests.strikes import KILLS, ON_LOOP, PLACES, Strikes
from touchfs_mount.requests.tree_answers import TreeAnswers

log = logging.getLogger(__name__)

# The interval of `Pool.tick` and `Interrupts.end` while a pool is busy.
TICK_SECONDS = 0.05
_TICK_NS = int(TICK_SECONDS * 1e9)
# `key & _PLACE_MASK` is `key % PLACES`.
_PLACE_MASK = PLACES - 1

_SILENT = frozenset({Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.NOTIFY_REPLY})
# What changes anything. The kernel asks for it only where the mount is not read-only, which somebody else may decide.
_CHANGES = (
    *(Opcode.SETATTR, Opcode.SYMLINK, Opcode.MKNOD, Opcode.MKDIR, Opcode.UNLINK, Opcode.RMDIR, Opcode.RENAME),
    *(Opcode.LINK, Opcode.WRITE, Opcode.SETXATTR, Opcode.REMOVEXATTR, Opcode.CREATE, Opcode.FALLOCATE),
    *(Opcode.RENAME2, Opcode.COPY_FILE_RANGE, Opcode.TMPFILE, Opcode.COPY_FILE_RANGE_64),
)
# Python's open() asks for each file whether it is a terminal; ENOSYS would not be remembered.
_REFUSED: dict[int, int] = {Opcode.IOCTL: errno.ENOTTY, **dict.fromkeys(_CHANGES, errno.EROFS)}


@dataclass(frozen=True, slots=True)
class Worker:
    """What one worker has of the memory and the descriptors that the processes of a mount share.

    `running` has the keys of the requests that run. End of file on `lifeline` means that the supervisor is gone; when
    `drain` becomes readable, the worker drains. `interrupted` is one cell that all have (`interrupts`).
    """

    counters: memoryview[int]
    numbers: Slot
    strikes: Strikes
    running: memoryview[int]
    lifeline: int
    drain: int
    interrupted: memoryview[int]


class Server:
    """One worker's part of a mount. `at_once` answers what cannot wait, `waiting` all, in threads.

    Requests with a strike go to `door`. `orphaned` is called once if the supervisor is gone; the server goes on until
    the mount ends. With `leaves_hanging` the kernel can send requests once more; with `traces` each one is logged.
    """

    def __init__(
        self,
        connection: KernelConnection,
        worker: Worker,
        at_once: TreeAnswers,
        waiting: TreeAnswers,
        pool: Pool,
        replies: Replies,
        door: socket.socket,
        orphaned: Callable[[], None],
        *,
        leaves_hanging: bool,
        traces: bool = False,
    ) -> None:
        self._connection = connection
        self._counters = worker.counters
        self._strikes = worker.strikes
        self._struck = worker.strikes.struck
        self._running = worker.running
        self._drain = worker.drain
        self._at_once, self._waiting = at_once, waiting
        self._pool = pool
        self._replies = replies
        self._interrupts = Interrupts(worker.interrupted, connection, pool)
        self._door = door
        self._orphaned = orphaned
        self._leaves_hanging = leaves_hanging
        self._traces = traces
        self._draining = False
        self._tick_at = 0
        self._poll = select.epoll()
        # One request wakes one worker.
        self._poll.register(connection.descriptor, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        for watched in (worker.lifeline, worker.drain):
            self._poll.register(watched, select.EPOLLIN)

    def run(self) -> bool:
        """Serve until the mount ends, or until this worker has drained. True if it has drained."""
        try:
            while not (self._draining and self._has_drained()):
                self._turn()
        except EndedError:
            return False
        return True

    def _turn(self) -> None:
        counters, source = self._counters, self._connection.descriptor
        counters[PARKED] = unanswered = self._pool.unanswered
        counters[BUSY_SINCE] = 0
        events = self._poll.poll(TICK_SECONDS if unanswered else -1)
        counters[BUSY_SINCE] = now = monotonic_ns()
        for descriptor, _ in events:
            if descriptor == source:
                self._take(now)
                continue
            self._poll.unregister(descriptor)
            if descriptor == self._drain:
                self._draining = True
                self._poll.unregister(source)
            else:
                self._orphaned()
        if now >= self._tick_at and not self._pool.is_idle:
            self._tick_at = now + _TICK_NS
            self._interrupts.end()
            for call in self._pool.tick():
                self._give_up(call)

    def _has_drained(self) -> bool:
        return self._pool.unanswered <= (len(self._pool.hanging) if self._leaves_hanging else 0)

    def _take(self, now: int) -> None:
        message = self._connection.receive()
        if message is None:
            self._counters[LOST_RACES] += 1
            return
        self._counters[REQUESTS] += 1
        request = parse(message)
        if self._traces:
            log.debug("%s", request)
        if request.opcode not in COUNTED:
            self._answer_others(request)
            return
        self._running[ON_LOOP] = key = request.key
        try:
            if self._struck[key & _PLACE_MASK] == key and self._strikes.has(key):
                self._hand_on(request, key, message, now)
            else:
                self._replies.answer(request, self._at_once, now)
        except WouldBlockError:
            self._hand_to_thread(request, key, now)
        finally:
            self._running[ON_LOOP] = 0

    def _answer_others(self, request: Request) -> None:
        opcode = request.opcode
        if opcode == Opcode.INTERRUPT:
            self._interrupts.note()
        elif opcode == Opcode.DESTROY:
            self._connection.answer(request.unique, ())
        elif opcode not in _SILENT:
            self._connection.refuse(request.unique, _REFUSED.get(opcode, errno.ENOSYS))

    def _hand_on(self, request: Request, key: int, message: bytes, began: int) -> None:
        """Hand on a request with a strike, or refuse it if it has killed whatever process ran it."""
        if self._strikes.is_refused(key):
            self._replies.fail(request, FormatError(KILLS), began)
            return
        try:
            self._door.send(message, socket.MSG_DONTWAIT)
        except OSError as error:
            self._replies.fail(request, SourceError(f"no process runs it alone: {error.strerror}"), began)

    def _hand_to_thread(self, request: Request, key: int, began: int) -> None:
        view, shard_id, _ = unpack(request.inode)
        try:
            self._pool.submit(Call(shard_id or -view, self._answer_in_thread, (request, began), key))
        except TouchfsError as error:
            self._replies.fail(request, error, began)

    def _answer_in_thread(self, argument: tuple[Request, int]) -> None:
        self._replies.answer(argument[0], self._waiting, argument[1])

    def _give_up(self, call: Call) -> None:
        request, began = call.argument
        if call.error is not None:
            self._replies.fail(request, call.error, began)
