"""What the Hub of Hugging Face says about a repository `somebody/data`, as far as its client asks for it."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from touchfs.source.remote import clients

REPOSITORY = "somebody/data"
API = f"/api/datasets/{REPOSITORY}"
COMMIT = {"id": "0" * 40, "title": "data", "date": "2026-01-01T00:00:00.000Z"}


class HuggingFaceServer(ThreadingHTTPServer):
    """`files` are the bytes by path. The bytes of a file are at another URL, as those of large files at the Hub."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def described(self, path: str) -> dict[str, object] | None:
        if path in self.files:
            data = self.files[path]
            oid = hashlib.sha1(data).hexdigest()
            return {"type": "file", "path": path, "size": len(data), "oid": oid, "lastCommit": COMMIT}
        if any(each.startswith(f"{path}/") for each in self.files):
            return {"type": "directory", "path": path, "size": 0, "oid": "1" * 40, "lastCommit": COMMIT}
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HuggingFaceServer

    def log_message(self, format: str, *arguments: object) -> None: ...

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        path = re.sub(r"/(revision|tree|resolve)/v1", r"/\1/main", unquote(urlsplit(self.path).path))  # a tag of it
        if path in (API, f"{API}/revision/main"):
            self._send({"id": REPOSITORY, "sha": COMMIT["id"], "siblings": [], "tags": [], "private": False})
        elif path.startswith(f"{API}/tree/main"):
            self._tree(path.removeprefix(f"{API}/tree/main").strip("/"))
        elif path.startswith(f"/datasets/{REPOSITORY}/resolve/main/"):
            self._answer(302, b"", {"Location": self.path.replace("/datasets/", "/elsewhere/", 1)})
        elif (data := self.server.files.get(path.removeprefix(f"/elsewhere/{REPOSITORY}/resolve/main/"))) is not None:
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            part = data[int(first) : int(last) + 1]
            self._answer(206, part, {"Content-Range": f"bytes {first}-{last}/{len(data)}"})
        else:
            self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    def do_POST(self) -> None:
        self.server.requests.append(self.path)
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = json.loads(text) if text.startswith("{") else parse_qs(text)
        found = [self.server.described(path.strip("/")) for path in asked["paths"]]
        self._send([each for each in found if each is not None])

    def _tree(self, directory: str) -> None:
        start = f"{directory}/" if directory else ""
        names = {path.removeprefix(start).split("/")[0] for path in self.server.files if path.startswith(start)}
        if names:
            self._send([self.server.described(start + name) for name in sorted(names)])
        else:
            self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    def _send(self, answer: object) -> None:
        self._answer(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def hf_server(place: Path, patch: pytest.MonkeyPatch) -> Iterator[HuggingFaceServer]:
    """A server that the real client is sent to, by a file of options at `place`."""
    server = HuggingFaceServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    # The client reads HF_ENDPOINT when it is imported.
    options = place / "options.json"
    options.touch(0o600)
    options.write_text(json.dumps({"hf": {"endpoint": server.endpoint}}))
    patch.setenv("TOUCHFS_OPTIONS_FILE", str(options))
    clients._CLIENTS.forget()  # those of an earlier server
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
