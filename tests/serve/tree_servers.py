"""`touchfs serve` on loopback, requests to it, and names that are meant to break listings."""

import http.client
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from command import TOUCHFS

from touchfs.dataset import Dataset
from touchfs.serve.access import HttpAccess, ServeAddress
from touchfs.serve.application import Application
from touchfs.serve.served_tree import ServedTree
from touchfs.serve.server import ANSWERS, TreeServer

SPEECH = Path(__file__).parent.parent / "data" / "speech" / "speech.jsonl"


class Got(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class RunningServer(NamedTuple):
    line: str
    process: subprocess.Popen

    @property
    def url(self):
        return self.line.split()[-1]

    @property
    def port(self):
        return int(self.url.rstrip("/").rpartition(":")[2])

    def ask(self, path="/", method="GET", body=None, **headers):
        """The answer to a request. In names of headers, `_` stands for `-`."""
        return ask(self.port, path, method, body, **headers)


def ask(port, path="/", method="GET", body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return Got(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def application_of(dataset: Dataset) -> Application:
    return Application(ServedTree(dataset), HttpAccess("localhost", None))


@contextmanager
def in_this_process(dataset: Dataset, answers: int = ANSWERS, application: Application | None = None) -> Iterator[int]:
    """The port of a server of this process, so that a test can set its limits."""
    application = application or application_of(dataset)
    server = TreeServer(ServeAddress("localhost", "127.0.0.1", 0), application, answers)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server.bind_addr[1]
    finally:
        server.stop()
        thread.join()


@contextmanager
def serving(dataset, *options, env=None):
    """`touchfs serve`. It must end at once, and have written no errors but those that the test reads from stderr."""
    command = [TOUCHFS, "serve", dataset, "--http", "127.0.0.1:0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        line = process.stdout.readline()
        assert line.startswith("serving "), process.stderr.read()
        yield RunningServer(line, process)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (0, False), errors


HOSTILE = {
    '<img src=x onerror=alert(1)>".txt': b"a",
    "a b&amp;%2e%2e?x#y.txt": b"b",
    "javascript:alert(1).txt": b"c",
    "bad\udcff.txt": b"d",
    "日本.html": b"<script>alert(1)</script>",
    "file.bin": bytes(range(256)) * 40,
}
