"""Datasets at URLs for Lance: a server in this process that has their files, in the few words of S3 that Lance uses.

Lance reads stores by clients of its own. They know nothing of our options, time-outs, limits and blocks on the disk,
and of web servers, SFTP and Hugging Face not at all. So Lance is told of a store of S3 at a port of this process, and
what it asks for there is read as all data is. The path of each request begins with a name that nobody can guess,
because other users of the machine reach the port, too. Only HEAD and GET of files are answered: Lance lists nothing of
a dataset whose version is known.

A fork has no threads of its parent, so it gets an endpoint of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import unquote

from touchfs.core.errors import NotFoundError, SourceError, TouchfsError
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.posix.threads import start_thread
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.storage_options import StorageOptions
from touchfs.source.store import StoredFile
from touchfs.tables.lance.errors import note_problem
from touchfs.tables.lance.versions import VERSIONS, manifest_names

# Lance asks for a small file as a whole; a larger one is sent in pieces of this size.
_PIECE = 1 << 20
_FILES_KEPT = 256
# Lance closes a connection that it has not used for 90 seconds.
_IDLE_SECONDS = 120
# What a request may take beyond the time-out of our own reads, which ends first and says why.
_MARGIN_SECONDS = 60
_RANGE = re.compile(r"bytes=(?:(\d{1,19})-(\d{0,19})|-(\d{1,19}))", re.ASCII)
_PATH = re.compile(r"/([0-9a-f]+)/(\d+)/([^?#]+)", re.ASCII)


class LanceAddress(NamedTuple):
    """The URI of a dataset, and the options with which Lance opens it."""

    uri: str
    storage_options: dict[str, str]


class Endpoint:
    """The server of a process."""

    def __init__(self) -> None:
        self._secret = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._served: list[_Served] = []
        handler = type("Handler", (_Handler,), {"find": staticmethod(self._find)})
        self._server = _Server(("127.0.0.1", 0), handler)
        start_thread(self._server.serve_forever, name="lance-endpoint")

    def serve(self, url: str, version: int, manifest: Fingerprint) -> LanceAddress:
        """The address of the dataset at a URL in a version that has a manifest: another one is not read."""
        served = _Served(url, version, manifest)
        with self._lock:
            number = next((i for i, each in enumerate(self._served) if each.name == served.name), len(self._served))
            if number == len(self._served):
                self._served.append(served)
        here = f"http://127.0.0.1:{self._server.server_port}"
        options = {
            "aws_endpoint": here,
            "aws_region": "us-east-1",
            "aws_skip_signature": "true",
            "aws_virtual_hosted_style_request": "false",
            "allow_http": "true",
            # A proxy that the environment names is for other machines.
            "proxy_url": here,
            "proxy_excludes": "127.0.0.1",
            "timeout": f"{StorageOptions.configured().timeout_seconds + _MARGIN_SECONDS:.0f}s",
        }
        return LanceAddress(f"s3://{self._secret}/{number}", options)

    def close(self) -> None:
        """Close the port in a fork, which has no thread that answers there."""
        self._server.server_close()

    def _find(self, path: str) -> tuple[_Served, str] | None:
        """The dataset and the name of the file in it that a request's path names."""
        match = _PATH.fullmatch(path)
        if match is None or not secrets.compare_digest(match[1], self._secret) or int(match[2]) >= len(self._served):
            return None
        return self._served[int(match[2])], unquote(match[3])


class _Served:
    """A version of a dataset at a URL: its files, of which those that were read last stay open."""

    def __init__(self, url: str, version: int, manifest: Fingerprint) -> None:
        self.url = url
        self.name = url, version, manifest
        self._manifests = {f"{VERSIONS}/{name}": manifest for name in manifest_names(version)}
        self._files: BoundedCache[str, StoredFile] = BoundedCache(_FILES_KEPT)

    def open(self, name: str) -> StoredFile:
        return self._files.get(name, lambda: self._open(name))

    def _open(self, name: str) -> StoredFile:
        file = DATA.open_beneath(self.url, name, self._manifests.get(name))
        file.open()
        return file


# The endpoint of this process, and addresses at that of the process which started this one.
_endpoint: Endpoint | None = None
_adopted: dict[str, LanceAddress] = {}
_lock = threading.Lock()


def address_of(url: str, version: int, manifest: Fingerprint) -> LanceAddress:
    """The address at which Lance reads a version of the dataset at a URL: reads raise ChangedError for another one."""
    global _endpoint
    if (adopted := _adopted.get(url)) is not None:
        return adopted
    with _lock:
        if _endpoint is None:
            _endpoint = Endpoint()
        return _endpoint.serve(url, version, manifest)


def adopt(url: str, address: LanceAddress) -> None:
    """Use an address at the endpoint of the process that started this one: only that may have the clients for it."""
    _adopted[url] = address


def _forked() -> None:
    global _endpoint, _lock
    _lock = threading.Lock()
    if _endpoint is not None:
        _endpoint.close()
        _endpoint = None


os.register_at_fork(after_in_child=_forked)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # Lance's threads connect all at once

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. Where none can be started, Lance is disconnected and asks again."""
        start_thread(self.process_request_thread, request, client_address, name="lance-request")

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away, or that will ask again."""
        if not isinstance(sys.exception(), OSError | SourceError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = _PIECE
    timeout = _IDLE_SECONDS
    find: Callable[[str], tuple[_Served, str] | None]

    def do_HEAD(self) -> None:
        self._answer(with_data=False)

    def do_GET(self) -> None:
        self._answer(with_data=True)

    def _answer(self, *, with_data: bool) -> None:
        found = self.find(self.path)
        if found is None:
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        served, name = found
        try:
            self._send(served, name, with_data=with_data)
        except NotFoundError:
            self._refuse(HTTPStatus.NOT_FOUND)
        except TouchfsError as error:
            note_problem(served.url, error)
            # After other errors, Lance would ask again. The read that failed has been tried often enough.
            self._refuse(HTTPStatus.BAD_REQUEST)

    def _send(self, served: _Served, name: str, *, with_data: bool) -> None:
        file = served.open(name)
        size = file.size
        start, stop = _span(self.headers.get("Range"), size)
        first = file.read(start, min(stop - start, _PIECE)) if with_data and stop > start else b""
        partial = "Range" in self.headers
        self.send_response(HTTPStatus.PARTIAL_CONTENT if partial else HTTPStatus.OK)
        if partial:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", f'"{hashlib.sha256(repr(file.fingerprint).encode()).hexdigest()[:32]}"')
        self.send_header("Last-Modified", "Thu, 01 Jan 1970 00:00:00 GMT")
        self.end_headers()
        if not with_data:
            return
        self.wfile.write(first)
        try:
            for position in range(start + _PIECE, stop, _PIECE):
                self.wfile.write(file.read(position, min(stop - position, _PIECE)))
        except TouchfsError as error:  # only an answer that breaks off says so now
            note_problem(served.url, error)
            self.close_connection = True

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the reader gets the error."""


def _span(text: str | None, size: int) -> tuple[int, int]:
    """The start and the end of a range within a file of a size."""
    match = None if text is None else _RANGE.fullmatch(text)
    if match is None:
        return 0, size
    if match[3]:
        return max(size - int(match[3]), 0), size
    stop = min(int(match[2]) + 1, size) if match[2] else size
    return min(int(match[1]), stop), stop
