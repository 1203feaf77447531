"""The process that runs one request alone, and ends (`alone`).

Nothing of a worker is in it but its handlers: what they would do in a thread they do at once. A thread watches. While
what the handler is in waits for a file system or for the state store, it tells so. Should the worker be gone, it ends
the process, and an alarm does where it cannot, as something holds the interpreter.
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

from touchfs_mount.daemon.worker import Environment, Operations
from touchfs_mount.loop.loop import CELLS
from touchfs_mount.requests.alone import Alone, Door
from touchfs_mount.requests.packed import pack, unpack
from touchfs_mount.requests.strikes import Strikes

_WAITING_MODULES = ("touchfs.posix.", "touchfs.source.", "touchfs.store.")
_LATER_SECONDS = 5.0
# What a listing is asked for at once: as much as the kernel asks for, 128 KiB.
_LISTING_MAX = 1024


def run_request(operations: Operations, strikes: Strikes, descriptor: int, stuck_seconds: float) -> int:
    """Answer the request that comes through the connection, and take its strike away. Returns the exit status."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text("touchfs-alone", encoding="ascii")  # for whoever looks at processes
    connection, sending = Connection(descriptor), threading.Lock()

    def send(*told: Any) -> None:
        with sending:
            connection.send(told)

    with suppress(EOFError, ConnectionError):  # the worker is gone, and its request will be sent again
        key, name, packed = connection.recv()
        send("began", os.getpid())
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        threading.Thread(target=_watch, args=(connection, send, stuck_seconds), daemon=True).start()
        arguments = [unpack(value) for value in packed]
        operations.started(environment())
        send("path", operations.path_of(*arguments))
        listed = _ListingReply()
        answer: tuple[str, Any]
        vars(pyfuse3)["readdir_reply"] = listed.reply
        try:
            answer = "answer", (pack(_run(getattr(operations, name)(*arguments))), listed.entries)
        except FUSEError as error:
            answer = "errno", error.errno
        # Before the answer is sent: if the worker is gone by now, the next one answers the request by itself.
        strikes.forgive(key)
        send(*answer)
    return 0


class _ListingReply:
    """Stands where the kernel's reply is filled."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, Any, int]] = []

    def reply(self, token: object, name: bytes, attributes: pyfuse3.EntryAttributes, place: int) -> bool:
        self.entries.append((name, pack(attributes), place))
        return len(self.entries) < _LISTING_MAX


def environment() -> Environment:
    strikes, counters = Strikes(1), memoryview(bytearray(8 * CELLS)).cast("q")
    return Environment(counters, strikes.running(0), None, _at_once, _at_once, Alone(strikes, Door(), 0))


async def _at_once(share: Hashable, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What it returns. It never waits for anybody."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a handler waits where nobody answers it")


def _watch(connection: Connection, send: Callable[..., None], stuck_seconds: float) -> None:
    main = threading.main_thread().ident or 0
    with suppress(EOFError, ConnectionError):
        while True:
            signal.setitimer(signal.ITIMER_REAL, stuck_seconds + _LATER_SECONDS)
            if connection.poll(stuck_seconds / 4):
                os._exit(0)  # nothing more is sent to us: the worker is gone
            module = sys._current_frames()[main].f_globals.get("__name__", "")
            if module.startswith(_WAITING_MODULES):
                send("waits", None)
