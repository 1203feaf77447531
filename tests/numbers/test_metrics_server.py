"""The HTTP server of the numbers, with good and bad clients."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from touchfs_mount.numbers import metrics
from touchfs_mount.numbers.metrics import CONNECTIONS_MAX, HEAD_MAX, MetricsServer
from touchfs_mount.numbers.sockets import MetricsAddress, listening

TEXT = b"# TYPE a gauge\na 1\n" * 1000
ANY_PORT = MetricsAddress()


@asynccontextmanager
async def served(address: MetricsAddress = ANY_PORT) -> AsyncIterator[int]:
    """The port at which a server answers."""
    with listening(address) as sockets:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(MetricsServer(sockets, lambda: TEXT).run)
            yield sockets.listeners[0].getsockname()[1]
            nursery.cancel_scope.cancel()


async def answer_to(port: int, request: bytes, host: str = "127.0.0.1") -> bytes:
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all(request)
        answer = b""
        while piece := await stream.receive_some():
            answer += piece
        return answer


def run(act: Callable[[int], Awaitable[None]], address: MetricsAddress = ANY_PORT) -> None:
    async def main() -> None:
        with trio.fail_after(30):
            async with served(address) as port:
                await act(port)

    trio.run(main)


def request(
    target: str = "/metrics", host: str | None = "localhost", method: str = "GET", version: str = "1.1"
) -> bytes:
    lines = [f"{method} {target} HTTP/{version}", *([] if host is None else [f"Host: {host}"])]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_text_is_served_at_both_loopback_addresses(host):
    async def act(port: int) -> None:
        head, _, body = (await answer_to(port, request(), host)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in head
        assert f"Content-Length: {len(TEXT)}\r\n".encode() in head
        assert body == TEXT

    run(act)


def test_a_head_request_gets_no_body():
    async def act(port: int) -> None:
        head, _, body = (await answer_to(port, request(method="HEAD"))).partition(b"\r\n\r\n")
        assert (status_of(head), body) == (200, b"")
        assert f"Content-Length: {len(TEXT)}\r\n".encode() in head

    run(act)


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        ("/metrics?x=1", "GET", 200),
        ("/", "GET", 404),
        ("/metrics/", "GET", 404),
        ("/../metrics", "GET", 404),
        ("http://localhost/metrics", "GET", 404),
        ("/metrics", "POST", 405),
        ("/metrics", "DELETE", 405),
        ("*", "OPTIONS", 404),
    ],
)
def test_nothing_else_is_there(target, method, status):
    async def act(port: int) -> None:
        answer = await answer_to(port, request(target, method=method))
        assert status_of(answer) == status
        assert (b"Allow: GET, HEAD\r\n" in answer) == (status == 405)

    run(act)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:{port}", "LocalHost:{port}", "[::1]:{port}", "192.168.1.7"])
def test_a_request_to_this_machine_is_answered(host):
    async def act(port: int) -> None:
        assert status_of(await answer_to(port, request(host=host.format(port=port)))) == 200

    run(act)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "", "node7", None],
)
def test_a_name_of_another_machine_is_refused(host):
    """A web page may let its own name point at this machine (DNS rebinding)."""

    async def act(port: int) -> None:
        answer = await answer_to(port, request(host=None if host is None else host.format(port=port)))
        assert status_of(answer) == 400
        assert TEXT not in answer

    run(act)


def test_an_old_client_must_name_its_host_too():
    async def act(port: int) -> None:
        assert status_of(await answer_to(port, request(host=None, version="1.0"))) == 400
        assert status_of(await answer_to(port, request(version="1.0"))) == 200

    run(act)


def test_a_public_port_is_asked_under_any_name():
    async def act(port: int) -> None:
        assert status_of(await answer_to(port, request(host="node7.example:9567"))) == 200

    run(act, MetricsAddress(public=True))


def test_a_port_is_of_the_loopback_only_unless_it_is_public():
    with listening(MetricsAddress()) as sockets:
        assert {listener.getsockname()[0] for listener in sockets.listeners} == {"127.0.0.1", "::1"}
    with listening(MetricsAddress(public=True)) as sockets:
        assert {listener.getsockname()[0] for listener in sockets.listeners} == {"0.0.0.0", "::"}


@pytest.mark.parametrize(
    "bad",
    [
        b"\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 30 + b"\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nX: " + b"a" * (2 * HEAD_MAX),
        b"GET /" + b"a" * (2 * HEAD_MAX),
    ],
    ids=["empty", "short", "TLS", "two hosts", "negative length", "long header", "long target"],
)
def test_what_is_no_request_is_refused(bad):
    async def act(port: int) -> None:
        assert status_of(await answer_to(port, bad)) in (400, 431)
        assert status_of(await answer_to(port, request())) == 200

    run(act)


@settings(max_examples=30)
@given(st.lists(st.binary(max_size=3000) | st.sampled_from([request(), b"GET ", b"\r\n\r\n", b"Host: localhost\r\n"])))
def test_any_bytes_are_survived(pieces):
    async def act(port: int) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            try:
                for piece in pieces:
                    await stream.send_all(piece)
                await stream.send_eof()
                answer = b""
                while piece := await stream.receive_some():
                    answer += piece
            except trio.BrokenResourceError:  # refused before all was sent
                answer = b""
        assert not answer or status_of(answer) in (200, 400, 404, 405, 431)
        assert status_of(await answer_to(port, request())) == 200

    run(act)


def test_slow_clients_are_cut_off_and_keep_nobody_out(monkeypatch):
    """More of them than are served at once: each sends a byte now and then, or reads nothing."""
    monkeypatch.setattr(metrics, "REQUEST_SECONDS", 0.3)

    async def act(port: int) -> None:
        async def drip(done: list[int], task_status: trio.TaskStatus[None]) -> None:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(b"G")
                task_status.started()
                try:
                    while True:
                        await trio.sleep(0.05)
                        await stream.send_all(b"G")
                except trio.BrokenResourceError:
                    done.append(1)

        done: list[int] = []
        async with trio.open_nursery() as nursery:
            for _ in range(2 * CONNECTIONS_MAX):
                await nursery.start(drip, done)
            assert status_of(await answer_to(port, request())) == 200
        assert len(done) == 2 * CONNECTIONS_MAX

    run(act)


def test_silent_clients_make_room(monkeypatch):
    """More of them than are served at once, and none ever sends a whole request."""
    monkeypatch.setattr(metrics, "REQUEST_SECONDS", 1000)

    async def act(port: int) -> None:
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(CONNECTIONS_MAX + 3)]
        for stream in silent[:3]:
            assert await stream.receive_some() == b""
        await silent[-1].send_all(request()[:20])
        for _ in range(3):
            assert status_of(await answer_to(port, request())) == 200
        await silent[-1].send_all(request()[20:])
        assert status_of(await silent[-1].receive_some()) == 200
        for stream in silent:
            await stream.aclose()

    run(act)


def test_clients_that_are_gone_are_forgotten():
    async def act(port: int) -> None:
        for _ in range(3 * CONNECTIONS_MAX):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
                client.send(request()[:20])
        assert status_of(await answer_to(port, request())) == 200

    run(act)


def test_a_failure_of_ours_does_not_end_the_server(caplog):
    calls: list[int] = []

    def text() -> bytes:
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError
        return TEXT

    async def main() -> None:
        with trio.fail_after(30), listening(MetricsAddress()) as sockets:
            port = sockets.listeners[0].getsockname()[1]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(MetricsServer(sockets, text).run)
                assert await answer_to(port, request()) == b""
                assert status_of(await answer_to(port, request())) == 200
                nursery.cancel_scope.cancel()

    trio.run(main)
    assert "a request for the metrics failed" in caplog.text
