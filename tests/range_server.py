"""An HTTP server of files in memory, on loopback: ranges, etags and conditions as in RFC 9110, and faults on demand."""

import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

RANGE = re.compile(r"bytes=(\d+)-(\d+)")
# Each of them is over after some attempts: whoever tries again gets the right bytes.
FAULTS = ("late", "reset", "cut", "500", "503", "429", "other range", "garbage range", "longer")


class SlowReplies:
    """A fault that delays each reply, and counts: `most` is how many requests waited at once."""

    def __init__(self, seconds: float = 0.2) -> None:
        self._seconds, self._waiting, self._lock = seconds, 0, threading.Lock()
        self.most = 0

    def __call__(self) -> None:
        with self._lock:
            self._waiting += 1
            self.most = max(self.most, self._waiting)
        time.sleep(self._seconds)
        with self._lock:
            self._waiting -= 1


class RangeServer(ThreadingHTTPServer):
    """`files` has bytes and etag by path; an empty etag is not sent. `fault` chooses one for each ranged request."""

    daemon_threads = True

    def __init__(self, host: str, certificate: Path | None = None) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), _Handler)
        self.scheme = "http"
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate)
            # A client that trusts it not ends its handshake in a thread of its own.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
            self.scheme = "https"
        self.files: dict[str, tuple[bytes, str]] = {}
        self.fault: Callable[[], str | None] = lambda: None
        self.knows_ranges = True
        self.types: dict[str, str] = {}
        # When files were modified, by path, and what the server takes for now: seconds since 1970.
        self.modified: dict[str, int] = {}
        self.now: int | None = None
        self.ranges: list[tuple[str, int, int]] = []
        # Where to a path redirects; and of all requests, whose they are and their headers.
        self.redirects: dict[str, str] = {}
        self.requests: list[tuple[tuple[str, int], dict[str, str]]] = []

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"{self.scheme}://[{host}]:{port}" if ":" in str(host) else f"{self.scheme}://{host}:{port}"

    def put(self, path: str, data: bytes, etag: str = '"1"') -> str:
        """Its URL."""
        self.files[path] = (data, etag)
        return self.url + path

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is not our concern."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer

    def log_message(self, format: str, *arguments: object) -> None: ...

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(self.server.now if timestamp is None else timestamp)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        self.server.requests.append((self.client_address, dict(self.headers)))
        if (target := self.server.redirects.get(self.path)) is not None:
            self._send(302, b"", with_body, {"Location": target})
            return
        path = self.path.partition("?")[0]
        found = self.server.files.get(path) or self.server.files.get(quote(unquote(path)))
        if found is None:
            names = {name.removeprefix(self.path) for name in self.server.files if name.startswith(self.path)}
            if not names:
                self._send(404, b"", with_body)
                return
            if not self.path.endswith("/"):
                self._send(301, b"", with_body, {"Location": self.path + "/"})
                return
            # As Apache's: with links that sort it, to the directory above, and to subdirectories.
            links = ["?C=N;O=D", self.path.rpartition("/")[0].rpartition("/")[0] + "/"]
            links += sorted({first + slash for first, slash, _ in (name.partition("/") for name in names)})
            page = "".join(f'<a href="{link}">{link}</a>' for link in links).encode()
            self._send(200, page, with_body, {"Content-Type": "text/html"})
            return
        data, etag = found
        if self.headers.get("If-Match", etag) != etag:
            self._send(412, b"", with_body)
            return
        asked = RANGE.fullmatch(self.headers.get("Range", ""))
        if asked is None or not self.server.knows_ranges:
            kind = {"Content-Type": self.server.types.get(self.path, "application/octet-stream")}
            self._send(200, data, with_body, {"ETag": etag, "Accept-Ranges": "bytes"} | kind)
            return
        start, stop = int(asked[1]), min(int(asked[2]) + 1, len(data))
        self.server.ranges.append((self.path, start, stop))
        fault = self.server.fault()
        sent, said = data[start:stop], f"bytes {start}-{stop - 1}/{len(data)}"
        if fault is not None and fault.isdigit():
            self._send(int(fault), b"try again", with_body)
            return
        if fault == "late":
            time.sleep(0.05)
        elif fault == "reset":
            self.close_connection = True
            self.connection.shutdown(2)
            return
        elif fault == "other range":
            sent, said = data[: stop - start], f"bytes 0-{stop - start - 1}/{len(data)}" if start else "bytes 1-2/3"
        elif fault == "garbage range":
            said = "bytes */*"
        headers = {"ETag": etag, "Content-Range": said}
        if fault == "longer":
            self._send_longer(sent, headers)
            return
        if fault == "cut":
            self.close_connection = True
            self._send(206, sent[: len(sent) // 2], with_body, headers, length=len(sent))
            return
        self._send(206, sent, with_body, headers)

    def _send_longer(self, data: bytes, headers: dict[str, str]) -> None:
        """A body without a length that goes on, in a chunk of its own."""
        self.send_response(206)
        for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        for chunk in (data, b"and more", b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))

    def _send(self, status, data, with_body, headers=None, length=None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            if value:
                self.send_header(name, value)
        if (modified := self.server.modified.get(self.path)) is not None:
            self.send_header("Last-Modified", self.date_time_string(modified))
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        if with_body:
            self.wfile.write(data)


@contextmanager
def range_server(host: str = "127.0.0.1", certificate: Path | None = None) -> Iterator[RangeServer]:
    """With a certificate and its key in one file, a server of HTTPS."""
    with RangeServer(host, certificate) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def some_faults(seed: int, share: float) -> Callable[[], str | None]:
    """A fault for this share of the requests."""
    chooser, lock = random.Random(seed), threading.Lock()

    def choose() -> str | None:
        with lock:
            return chooser.choice(FAULTS) if chooser.random() < share else None

    return choose
