"""The server: cheroot, with limits on what a client can hold up.

Each connection has a thread while a request of it is read or answered. So a slow client delays nobody, until there are
as many as threads; and each of its steps has a deadline, which a byte now and then does not move.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Any

from touchfs.core.errors import MissingExtraError, UsageError
from touchfs.core.extras import install_hint
from touchfs.posix.threads import start_thread
from touchfs.serve.access import ServeAddress
from touchfs.serve.application import IS_GONE, Application
from touchfs.serve.propfind import BODY_MAX
from touchfs.serve.turns import RETRY_AFTER

try:
    from cheroot.server import HTTPConnection, HTTPRequest
    from cheroot.wsgi import Gateway_10, Server
except ImportError as error:
    raise MissingExtraError(f"serving needs cheroot: {install_hint('serve')}") from error

THREADS = 64
# Of one client at a time; and how many more wait for these, and how long. Each has a thread, so others have the rest.
ANSWERS = 32
QUEUE, QUEUE_SECONDS = 24, 5.0
HEADERS_MAX = 1 << 15
# For a request to arrive as a whole, and for a client to take a piece of the answer (`files.PIECE`).
REQUEST_SECONDS, PIECE_SECONDS = 10, 60
_LOOK_SECONDS = 0.5
# With a header, for which cheroot has no other place.
_BUSY = f"{HTTPStatus.SERVICE_UNAVAILABLE.value} Service Unavailable\r\n{': '.join(RETRY_AFTER)}"
_ESTABLISHED = 1  # of TCP, in <linux/tcp.h>
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SINGLE = frozenset((b"Host", b"Content-Length", b"Content-Type", b"Authorization", b"Range", b"If-Range", b"Depth"))
_logger = logging.getLogger(__name__)


class _Deadlines:
    """Shuts sockets down that are not done in time. A thread that reads or writes one goes on then, with an error.

    The thread that does it sleeps while there are none, and ends with `close`.
    """

    def __init__(self) -> None:
        self._ends: dict[socket.socket, tuple[float, int]] = {}
        self._lock = threading.Lock()
        self._is_needed = threading.Event()
        self._is_closed = threading.Event()
        start_thread(self._watch, name="deadlines")

    @contextmanager
    def within(self, seconds: float, connection: socket.socket, direction: int) -> Iterator[None]:
        """Shut a socket down in this direction if the block takes longer."""
        with self._lock:
            self._ends[connection] = time.monotonic() + seconds, direction
            self._is_needed.set()
        try:
            yield
        finally:
            with self._lock:
                self._ends.pop(connection, None)

    def close(self) -> None:
        with self._lock:
            self._is_closed.set()
            self._is_needed.set()

    def _watch(self) -> None:
        while self._is_needed.wait() and not self._is_closed.wait(_LOOK_SECONDS):
            now = time.monotonic()
            with self._lock:
                if not self._ends and not self._is_closed.is_set():
                    self._is_needed.clear()
                for connection, (end, direction) in self._ends.items():
                    if end < now:
                        with suppress(OSError):
                            connection.shutdown(direction)


class _OpenAnswers:
    """How many answers are open to each client. One more waits for a moment, in a short queue; who asks for still more
    is refused, so that threads are left for others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def to(self, client: str) -> Iterator[bool]:
        """True if this client may have another answer. Waits for that."""
        with self._changed:
            may = self._may(client)
            self._open[client] += may
        try:
            yield may
        finally:
            with self._changed:
                self._open[client] -= may
                if not self._open[client]:
                    del self._open[client]
                self._changed.notify_all()

    def _may(self, client: str) -> bool:
        if self._open[client] < self._most:
            return True
        if self._waiting[client] >= QUEUE:
            return False
        self._waiting[client] += 1
        try:
            return self._changed.wait_for(lambda: self._open[client] < self._most, QUEUE_SECONDS)
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]


def read_headers(file: Any, headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Read the fields of a request into `headers`, as RFC 9112 has them.

    Raises ValueError for a line without a name or with space before its colon, as lines that continue another one have,
    and for a second one of a name that has one value.
    """
    while (line := file.readline()) != b"\r\n":
        name, colon, value = line.partition(b":")
        if not (colon and line.endswith(b"\r\n") and _NAME.fullmatch(name)):
            raise ValueError("Malformed Header Line.")
        name, value = name.title(), value.strip()
        if name in headers:
            if name in _SINGLE:
                raise ValueError("Two Headers of One Name.")
            value = headers[name] + b", " + value
        if b"_" not in name:  # in the names of WSGI it would be the same as one with "-"
            headers[name] = value
    return headers


class _HttpRequest(HTTPRequest):
    header_reader = staticmethod(read_headers)

    def parse_request(self) -> None:
        with self.server.deadlines.within(REQUEST_SECONDS, self.conn.socket, socket.SHUT_RD):
            super().parse_request()

    def read_request_line(self) -> bool:
        try:
            return bool(super().read_request_line())  # type: ignore[no-untyped-call]
        except ValueError:  # of urllib, about what is in brackets
            self.simple_response("400 Bad Request", "Malformed Request-URI")
            return False

    def read_request_headers(self) -> bool:
        read = bool(super().read_request_headers())  # type: ignore[no-untyped-call]
        if read and not self.inheaders.get(b"Content-Length", b"0").isdigit():  # cheroot reads -1, +5 and 1_0, too
            self.simple_response("400 Bad Request", "Malformed Content-Length Header.")
            return False
        return read

    def respond(self) -> None:
        # No client sends such a PROPFIND, and of HTTP/1.0 cheroot would take its body for the next request.
        if b"Transfer-Encoding" in self.inheaders:
            self.simple_response("411 Length Required")
            self.close_connection = True
            return
        with self.server.open_answers.to(self.conn.remote_addr) as may:
            if not may:
                self.simple_response(_BUSY, "This client has too many open answers.")
                self.close_connection = True
                return
            # The body of the request is read here. The answer may take longer; it does not need this direction.
            with self.server.deadlines.within(REQUEST_SECONDS, self.conn.socket, socket.SHUT_RD):
                super().respond()

    def write(self, chunk: Any) -> None:
        with self.server.deadlines.within(PIECE_SECONDS, self.conn.socket, socket.SHUT_RDWR):
            super().write(chunk)


class _HttpConnection(HTTPConnection):
    RequestHandlerClass = _HttpRequest


class _Gateway(Gateway_10):
    def respond(self) -> None:
        self.env[IS_GONE] = partial(_is_gone, self.req.conn.socket)
        super().respond()


def _is_gone(connection: socket.socket) -> bool:
    """True if the client has closed the connection. To read would not tell, once that is shut down (`_Deadlines`)."""
    state: int = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state != _ESTABLISHED


class TreeServer(Server):
    """Serves an application at an address, which is bound at once. A client has so many `answers` at a time.

    Raises UsageError if that cannot be done.
    """

    ConnectionClass = _HttpConnection
    max_request_header_size = HEADERS_MAX
    max_request_body_size = BODY_MAX
    keep_alive_conn_limit = THREADS

    def __init__(self, address: ServeAddress, application: Application, answers: int = ANSWERS) -> None:
        super().__init__(
            (address.address, address.port),
            application,
            numthreads=THREADS,
            server_name="touchfs",
            request_queue_size=128,
            timeout=PIECE_SECONDS,
            accepted_queue_size=THREADS,
            # Who finds all threads and the queue in use gets status 503 at once, so that others are still accepted.
            accepted_queue_timeout=0,
        )
        self.gateway = _Gateway
        self.open_answers = _OpenAnswers(answers)
        self._application = application
        os.environ.pop("LISTEN_PID", None)  # cheroot would take any descriptor 3 for its socket
        try:
            self.prepare()
        except OSError as error:
            reason = str(error).rpartition("] ")[2].rstrip(")") or "unknown reason"
            raise UsageError(f"--http: {address.host} port {address.port} cannot be used: {reason}") from error
        self.deadlines = _Deadlines()

    def stop(self) -> None:
        """End, and the threads with it."""
        super().stop()
        self.deadlines.close()
        self._application.close()

    @property
    def url(self) -> str:
        """The URL of the root."""
        host, port = self.bind_addr[:2]
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def error_log(self, msg: str = "", level: int = logging.ERROR, traceback: bool = False) -> None:
        """Log an error of the server in one line."""
        _logger.log(level, "%s", msg, exc_info=traceback and _logger.isEnabledFor(logging.DEBUG))
