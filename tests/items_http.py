"""A real HTTP server on loopback, which serves bytes by path, and notes what it was asked."""

import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Served:
    """What a server serves: bodies and redirects by path. `asked` has the path and headers of each request."""

    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    has_ranges: bool = True
    asked: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving() -> Iterator[Served]:
    served = Served()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            served.asked.append((self.command, self.path, dict(self.headers)))
            if self.path in served.redirects:
                self.answer(302, b"elsewhere", {"Location": served.redirects[self.path]})
            elif self.path not in served.files:
                self.answer(404, b"no such file")
            elif served.has_ranges and (wanted := self.headers.get("Range")):
                data = served.files[self.path]
                first, last = wanted.removeprefix("bytes=").split("-")
                part = data[int(first) : int(last) + 1 if last else None]
                if part:
                    self.answer(206, part, {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"})
                else:
                    self.answer(416, b"")
            else:
                self.answer(200, served.files[self.path])

        do_HEAD = do_GET

        def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {}), **served.headers}.items():
                if name != "Content-Length" or "Transfer-Encoding" not in served.headers:
                    self.send_header(name, value)
            if served.has_ranges:
                self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            if self.command == "GET":
                if "Transfer-Encoding" in served.headers:
                    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that refuses a reply closes the connection."""

    server = Server(("127.0.0.1", 0), Handler)
    served.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
