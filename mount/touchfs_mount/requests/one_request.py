"""The process that runs one request alone, and exits (`alone`).

It has the handlers of a worker, but no loop: functions that a worker would run in a thread are called directly. A
thread watches the process. It reports to the worker while the handler waits for a file system or for the state store.
If the worker is gone, it ends the process; if it cannot run because C code holds the interpreter lock, an alarm does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyfuse3
from pyfuse3 import FUSEError

from touchfs.errors import TouchfsError
from touchfs.posix.threads import start_thread
from touchfs_mount.loop.loop import CELLS
from touchfs_mount.numbers.slots import MountNumbers
from touchfs_mount.requests.alone import Alone, Door
from touchfs_mount.requests.environment import Environment, Operations
from touchfs_mount.requests.packed import pack, unpack
from touchfs_mount.requests.strikes import Strikes

_WAITING_MODULES = ("touchfs.posix.", "touchfs.source.", "touchfs.store.", "psycopg.")
_LATER_SECONDS = 5.0
# The entries to list at once: as many as the kernel requests, 128 KiB.
_LISTING_MAX = 1024


def run_request(operations: Operations, strikes: Strikes, descriptor: int, stuck_seconds: float) -> int:
    """Answer the one request that comes through the connection, and remove its strike. Returns the exit status."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text("touchfs-alone", encoding="ascii")  # shown by ps and top
    connection, sending = Connection(descriptor), threading.Lock()

    def send(*message: Any) -> None:
        with sending:
            connection.send(message)

    with suppress(EOFError, ConnectionError):  # the worker is gone, and its request will be resent
        key, name, packed = connection.recv()
        # Before it begins: where no thread can be started, the request is not at fault.
        start_thread(_watch, connection, send, stuck_seconds, name="watch")
        send("began", os.getpid())
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        arguments = [unpack(value) for value in packed]
        operations.started(environment())
        with suppress(TouchfsError, IndexError):  # a stale inode, a damaged catalog: the handler has the right error
            send("path", operations.path_of(*arguments))
        listing = _ListingReply()
        answer: tuple[str, Any]
        vars(pyfuse3)["readdir_reply"] = listing.reply
        try:
            answer = "answer", (pack(_run(getattr(operations, name)(*arguments))), listing.entries)
        except FUSEError as error:
            answer = "errno", error.errno
        # Before the answer is sent: if the worker is gone by now, the next one handles the request itself.
        strikes.forgive(key)
        send(*answer)
    return 0


class _ListingReply:
    """Replaces `pyfuse3.readdir_reply`, and records the entries."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, Any, int]] = []

    def reply(self, token: object, name: bytes, attributes: pyfuse3.EntryAttributes, cookie: int) -> bool:
        self.entries.append((name, pack(attributes), cookie))
        return len(self.entries) < _LISTING_MAX


def environment() -> Environment:
    """An environment without a loop: offloaded functions are called directly, and no request has a strike."""
    strikes, counters = Strikes(1), memoryview(bytearray(8 * CELLS)).cast("q")
    alone, (numbers,) = Alone(strikes, Door(), 0), MountNumbers(1).workers
    return Environment(counters, strikes.running(0), None, _at_once, _at_once, alone, numbers)


async def _at_once(share: Hashable, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a handler waits, but there is no loop here")


def _watch(connection: Connection, send: Callable[..., None], stuck_seconds: float) -> None:
    main = threading.main_thread().ident or 0
    with suppress(EOFError, ConnectionError):
        while True:
            signal.setitimer(signal.ITIMER_REAL, stuck_seconds + _LATER_SECONDS)
            if connection.poll(stuck_seconds / 4):
                os._exit(0)  # the worker sends nothing more, so it is gone
            module = sys._current_frames()[main].f_globals.get("__name__", "")
            if module.startswith(_WAITING_MODULES):
                send("waits", None)
