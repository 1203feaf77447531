"""A web server on loopback for benchmarks: ranges of files in memory, with latency, a bandwidth and faults.

`python latency_server.py SIZE [--latency 0.02] [--bandwidth 50e6] [--faults 0.01]` serves `/0`, `/1` and so on, all of
the same SIZE random bytes, prints its port, and ends with its standard input. It is one asyncio protocol, without a
library for HTTP: so it answers several thousand requests a second (`python latency_server.py --rate` measures them).
With `--file FILE`, each path with its suffix is that file, no other is there, and SIZE does not matter. A name with
braces, which stands for several, is not there.
Latency is the time from a request to its first byte; the bandwidth is that of each connection.
"""

import argparse
import asyncio
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

REQUEST = re.compile(rb"(GET|HEAD) (/\S*) HTTP/1.1\r\n(.*?)\r\n\r\n", re.DOTALL)
RANGE = re.compile(rb"range: *bytes=(\d+)-(\d+)", re.IGNORECASE)
ETAG = b'"1"'
SLICE = 256 << 10


class Connection(asyncio.Protocol):
    """A connection, whose requests are answered one after the other."""

    def __init__(self, data: bytes, options: argparse.Namespace) -> None:
        self.data, self.options, self.buffer = memoryview(data), options, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while match := REQUEST.match(self.buffer):
            self.buffer = self.buffer[match.end() :]
            has_suffix = match[2].endswith(Path(self.options.file).suffix.encode())
            if b"{" in match[2] or b"%7B" in match[2] or not has_suffix:
                self.transport.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            else:
                self.request(match[1] == b"HEAD", match[3])

    def request(self, is_head: bool, headers: bytes) -> None:
        size = len(self.data)
        found = RANGE.search(headers)
        start, stop = (int(found[1]), min(int(found[2]) + 1, size)) if found else (0, size)
        status = b"206 Partial Content" if found else b"200 OK"
        if not is_head and random.random() < self.options.faults:
            status, stop = b"503 Service Unavailable", start
        head = b"HTTP/1.1 %s\r\nETag: %s\r\nAccept-Ranges: bytes\r\nContent-Length: %d\r\n" % (
            status,
            ETAG,
            stop - start,
        )
        if found and stop > start:
            head += b"Content-Range: bytes %d-%d/%d\r\n" % (start, stop - 1, size)
        body = self.data[start : start if is_head else stop]
        if self.options.latency:
            self.loop.call_later(self.options.latency, self.send, head + b"\r\n", body)
        else:
            self.send(head + b"\r\n", body)

    def send(self, head: bytes, body: memoryview) -> None:
        self.transport.write(head)
        if self.options.bandwidth:
            self.send_slices(body, self.loop.time(), 0)
        elif body:
            self.transport.write(body)

    def send_slices(self, body: memoryview, begun: float, sent: int) -> None:
        """Each slice when its last byte has had the time to pass."""
        if sent < len(body):
            slice = body[sent : sent + SLICE]
            sent += len(slice)
            self.loop.call_at(begun + sent / self.options.bandwidth, self.send_slice, slice, body, begun, sent)

    def send_slice(self, slice: memoryview, body: memoryview, begun: float, sent: int) -> None:
        self.transport.write(slice)
        self.send_slices(body, begun, sent)


@contextmanager
def latency_server(
    size: int, latency: float = 0.02, bandwidth: float = 50e6, faults: float = 0, file: str = ""
) -> Iterator[str]:
    """A server in a process of its own; its URL."""
    options = [f"--latency={latency}", f"--bandwidth={bandwidth}", f"--faults={faults}", f"--file={file}"]
    command = [sys.executable, __file__, str(size), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            port = int(process.stdout.readline())
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()


async def serve(options: argparse.Namespace) -> None:
    data = Path(options.file).read_bytes() if options.file else np.random.default_rng(1).bytes(options.size)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(data, options), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


async def measured_rate(url: str, seconds: float = 2.0, clients: int = 32) -> float:
    """Ranged GETs of 4 KiB a second, each client one after the other over a connection of its own."""
    port, count, until = int(url.rpartition(":")[2]), 0, time.perf_counter() + seconds

    async def ask() -> None:
        nonlocal count
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until:
            writer.write(b"GET /0 HTTP/1.1\r\nHost: x\r\nRange: bytes=8192-12287\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(4096)
            count += 1
        writer.close()

    await asyncio.gather(*(ask() for _ in range(clients)))
    return count / seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("size", type=int, nargs="?", default=1 << 20)
    parser.add_argument("--rate", action="store_true")
    parser.add_argument("--file", default="")
    for name in ("latency", "bandwidth", "faults"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    given = parser.parse_args()
    if given.rate:
        with latency_server(given.size, 0, 0) as where:
            print(f"{asyncio.run(measured_rate(where)):,.0f} ranged GETs a second")
    else:
        asyncio.run(serve(given))
