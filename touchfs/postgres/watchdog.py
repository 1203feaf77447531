"""A watchdog over one connection: it breaks the connection if a transaction gets no answer for long.

The server's own limits end transactions that wait for others. But a server that is stopped, or behind a network that
swallows packets, says nothing at all, and libpq would wait for it for ever.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress

from touchfs.posix.threads import start_thread

_LOOK_SECONDS = 0.5


class Watchdog:
    """Watches the socket of a connection, in a thread that sleeps while no transaction goes on."""

    def __init__(self, descriptor: int, seconds: float) -> None:
        # A descriptor of its own is never that of another connection.
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._seconds = seconds
        self._since = 0.0
        self._is_ended = False
        self._is_needed = threading.Event()
        self._thread = start_thread(self._watch, name="touchfs-database")

    def begin(self) -> None:
        """A transaction begins."""
        self._since = time.monotonic()
        if not self._is_needed.is_set():
            self._is_needed.set()

    def end(self) -> None:
        self._since = 0.0

    def close(self) -> None:
        """End the thread."""
        self._is_ended = True
        self._is_needed.set()

    def _watch(self) -> None:
        idle = 0
        while True:
            self._is_needed.wait()
            if self._is_ended:
                return self._socket.close()
            time.sleep(_LOOK_SECONDS)
            since = self._since
            if since and time.monotonic() - since > self._seconds:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            idle = 0 if since else idle + 1
            if idle > 3 and not self._is_ended:
                self._is_needed.clear()
                if self._since or self._is_ended:  # it began just now
                    self._is_needed.set()
