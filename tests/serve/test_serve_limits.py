"""Clients that are slow, many or curious, and data that changes: others are served, and nobody gets wrong bytes."""

import os
import select
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection

import pytest
from tars import write_tar
from tree_servers import ask, in_this_process, serving
from waiting import wait_until

import touchfs.serve.server as server_module
from touchfs.indexing import list_dataset, open_dataset
from touchfs.serve.access import HttpAccess
from touchfs.serve.application import Application
from touchfs.serve.served_tree import ServedTree

SIZE = 20_000_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A server of a file that does not fit into the buffers of a socket."""
    with serving(
        write_tar(tmp_path_factory.mktemp("large") / "l.tar", {"a.bin": bytes(SIZE), "b.txt": b"b"})
    ) as server:
        yield server


@contextmanager
def connected(port, text):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(text.encode())
        yield connection


GET = "GET /shards/l/a.bin HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connection_of(client, port):
    return socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(f"127.0.0.{client}", 0))


def test_slow_readers_hold_up_nobody(large):
    slow = [connection_of(2 + i % 2, large.port) for i in range(server_module.THREADS - 4)]
    try:
        for each in slow:
            each.sendall(GET.encode())
        assert all(each.recv(1) for each in slow)
        assert large.ask("/shards/l/b.txt").body == b"b"
    finally:
        for each in slow:
            each.close()


def test_too_many_clients_are_told_so_and_later_ones_are_served(speech):
    with serving(speech) as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2 * server_module.THREADS + 10)]
        answered = select.poll()  # select() knows no descriptor above 1,023
        for each in idle:
            answered.register(each, select.POLLIN)
        ready = {descriptor for descriptor, _ in answered.poll(60_000)}
        assert any(each.recv(100).startswith(b"HTTP/1.1 503 ") for each in idle if each.fileno() in ready)
        for each in idle:
            each.close()
        wait_until(lambda: server.ask().status == 200)  # its threads notice one by one that their clients are gone


@pytest.mark.parametrize(
    "begun",
    [
        "",
        "GET / HTTP/1.1\r\nX: ",
        "PROPFIND / HTTP/1.1\r\nHost: localhost\r\nDepth: 0\r\nContent-Length: 60000\r\n\r\n",
    ],
)
def test_a_request_that_comes_byte_by_byte_ends(speech, monkeypatch, begun):
    monkeypatch.setattr(server_module, "REQUEST_SECONDS", 0.5)
    with in_this_process(open_dataset(str(speech))) as port, connected(port, begun) as connection:
        answered = threading.Event()

        def trickle():
            while not answered.wait(0.1):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            received = connection.recv(1000)
        except ConnectionError:
            received = b""
        answered.set()
        thread.join()
        assert b" 200 " not in received


def is_established(port: int, client: int) -> bool:
    """Whether the server has its connection to a client still. A client that reads nothing is not told."""
    with open("/proc/net/tcp") as connections:
        found = [line.split()[1:4] for line in connections]
    return [f"0100007F:{port:04X}", f"0100007F:{client:04X}", "01"] in found


def test_a_reader_that_takes_nothing_loses_its_connection(monkeypatch, tmp_path):
    monkeypatch.setattr(server_module, "PIECE_SECONDS", 0.5)
    shard = write_tar(tmp_path / "l.tar", {"a.bin": bytes(SIZE)})
    with in_this_process(open_dataset(str(shard))) as port, connected(port, GET) as connection:
        wait_until(lambda: not is_established(port, connection.getsockname()[1]))
        received = 0
        try:
            while piece := connection.recv(1 << 20):
                received += len(piece)
        except ConnectionError:
            pass
        assert received < SIZE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_while_clients_wait(tmp_path, number):
    shard = write_tar(tmp_path / "l.tar", {"a.bin": bytes(SIZE)})
    with serving(shard) as server, connected(server.port, GET) as slow, connected(server.port, "GET /"):
        assert slow.recv(1)
        server.process.send_signal(number)
        assert server.process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + "x" * 40000 + "\r\n\r\n", b"413"),
        ("GET / HTTP/1.1\r\n" + "X: y\r\n" * 10000 + "\r\n", b"413"),
        ("GET /" + "x" * 40000 + " HTTP/1.1\r\n\r\n", b"414"),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        ("GET / HTTP/1.1\r\n\r\n", b"421"),
        ("PROPFIND / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nxx", b"400"),
        ("nonsense\r\n\r\n", b"400"),
    ],
)
def test_requests_beyond_the_limits(served, request_text, status):
    with connected(served.port, request_text) as connection:
        assert connection.recv(1000).split()[1] == status


def test_the_body_of_a_refused_request_is_no_request(served):
    hidden = "GET /shards/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
    text = f"GET / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}"
    chunked = f"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
    for each in (text + "GET /end HTTP/1.0\r\nHost: localhost\r\n\r\n", chunked):
        received = b""
        with connected(served.port, each) as connection:
            try:
                while piece := connection.recv(1000):
                    received += piece
            except ConnectionError:
                pass
        assert b"000000000" not in received


def test_no_client_uses_up_what_lookups_number(speech):
    """An inode number has room for 1,023 plans."""
    with (
        in_this_process(open_dataset(str(speech))) as port,
        closing(HTTPConnection("127.0.0.1", port)) as connection,
    ):
        for number in range(1030):
            connection.request("PROPFIND", f"/merged/max={number + 1},gap=0.5/", headers={"Depth": "0"})
            answer = connection.getresponse()
            assert answer.read() and answer.status == 207
        assert ask(port, "/merged/max=30,gap=0.5/000000000/numbers/0000.wav").status == 200


def test_a_large_listing_is_sent_while_it_is_made(tmp_path):
    """Its memory does not grow with the directory."""
    count = 5_000
    with serving(write_tar(tmp_path / "many.tar", {f"{number:06}.txt": b"x" for number in range(count)})) as server:
        process = f"/proc/{server.process.pid}"

        def peak():
            with open(f"{process}/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

        server.ask("/shards/many/", "PROPFIND", Depth="0")
        with open(f"{process}/clear_refs", "w") as file:
            file.write("5")
        before = peak()
        assert server.ask("/shards/many/", "PROPFIND", Depth="1").body.count(b"<D:response>") == count + 1
        assert server.ask("/shards/many/").body.count(b"href=") == count + 1
        assert peak() - before < 4_000


def test_a_shard_that_has_changed_is_gone(tmp_path):
    shard = write_tar(tmp_path / "c.tar", {"a.txt": b"old!"})
    with serving(shard) as server:
        etag = server.ask("/shards/c/a.txt").headers["ETag"]
        write_tar(shard, {"a.txt": b"new!"})
        os.utime(shard, (1, 1))
        wait_until(lambda: server.ask("/shards/c/a.txt").status == 410)  # a file counts as unchanged for a second
        for headers in ({}, {"If_None_Match": etag}, {"Range": "bytes=1-2"}):
            got = server.ask("/shards/c/a.txt", **headers)
            assert (got.status, got.body.count(b"\n"), b"!" in got.body) == (410, 1, False)
            assert os.fsencode(tmp_path) not in got.body
    with serving(shard) as server:
        got = server.ask("/shards/c/a.txt")
        assert (got.body, got.headers["ETag"] == etag) == (b"new!", False)


def test_a_change_during_an_answer_ends_it(monkeypatch, tmp_path):
    monkeypatch.setattr("touchfs.source.local.VERIFY_SECONDS", 0)  # a file counts as unchanged for a second
    shard = write_tar(tmp_path / "l.tar", {"a.bin": b"o" * SIZE})
    with in_this_process(open_dataset(str(shard))) as port, connected(port, GET) as connection:
        received = connection.recv(1000)
        other = write_tar(tmp_path / "other", {"a.bin": b"n" * SIZE})
        shard.write_bytes(other.read_bytes())
        while piece := connection.recv(1 << 20):
            received += piece
        body = received.partition(b"\r\n\r\n")[2]
        assert len(body) < SIZE
        assert b"n" not in body


@pytest.mark.parametrize("length", ["-1", "-5", "+5", "1_0", "x", ""])
def test_a_length_that_is_no_number_is_refused(large, length):
    """cheroot takes -1 for "to the end", and kept all that was sent."""
    head = f"GET /shards/l/b.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    with connected(large.port, head) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("version", ["1.0\r\nConnection: Keep-Alive", "1.1"])
def test_a_body_in_chunks_is_no_further_request(large, version):
    head = f"GET /shards/l/b.txt HTTP/{version}\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connected(large.port, head + GET) as connection:
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 411 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("target", ["http://[::1/", "//[/"])
def test_a_target_that_is_no_url_is_refused(large, target):
    with connected(large.port, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "headers",
    [
        " Host: localhost",
        "Host: localhost\r\n Accept: continued",
        "Host : localhost",
        "Host: localhost\r\nno colon",
        "Host: evil.example\r\nHost: localhost",
        "Host: localhost\r\nContent-Length: 5\r\nContent-Length: 0",
        "Host: localhost\r\nRange: bytes=0-1\r\nRange: bytes=5-6",
    ],
)
def test_headers_that_can_be_read_in_two_ways_are_refused(large, headers):
    with connected(large.port, f"GET /shards/l/b.txt HTTP/1.1\r\n{headers}\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


@contextmanager
def held(dataset, monkeypatch, seconds):
    """A server whose answers begin, and go on once the event is set; the requests that have begun; clients of it."""
    monkeypatch.setattr(server_module, "QUEUE_SECONDS", seconds)
    gate, begun = threading.Event(), []

    class HeldApplication(Application):
        def __call__(self, environ, start_response):
            begun.append(environ["PATH_INFO"])
            gate.wait(60)
            return super().__call__(environ, start_response)

    application = HeldApplication(ServedTree(dataset), HttpAccess("localhost", None))
    with in_this_process(dataset, application=application) as port, ThreadPoolExecutor(server_module.THREADS) as pool:
        try:
            yield gate, begun, lambda number: [pool.submit(ask, port, "/shards/l/b.txt") for _ in range(number)]
        finally:
            gate.set()


def test_requests_wait_for_a_moment_where_a_client_has_too_many(tmp_path, monkeypatch):
    """Only those beyond a short queue are refused, at once, and told when to come again."""
    dataset = open_dataset(os.fspath(write_tar(tmp_path / "l.tar", {"b.txt": b"b"})), in_place=True)
    with held(dataset, monkeypatch, 60.0) as (gate, begun, asking):
        asked = asking(server_module.ANSWERS + server_module.QUEUE + 5)
        wait_until(lambda: sum(each.done() for each in asked) == 5 and len(begun) == server_module.ANSWERS)
        refused = [each.result() for each in asked if each.done()]
        assert {(got.status, got.headers["Retry-After"]) for got in refused} == {(503, "5")}
        gate.set()
        answered = [each.result(60).status for each in asked]
        assert (answered.count(200), answered.count(503)) == (server_module.ANSWERS + server_module.QUEUE, 5)
    with held(dataset, monkeypatch, 0.2) as (gate, begun, asking):
        asked = asking(server_module.ANSWERS + 1)
        wait_until(lambda: any(each.done() for each in asked) and len(begun) == server_module.ANSWERS)
        assert [each.result().status for each in asked if each.done()] == [503]


def test_one_client_that_reads_nothing_leaves_threads_for_others(large):
    """Those that it has too many are refused, and it is served again when it has fewer."""
    with ExitStack() as hers:
        waiting = [hers.enter_context(connected(large.port, GET)) for _ in range(server_module.ANSWERS)]
        wait_until(lambda: all(select.select([each], [], [], 0)[0] for each in waiting))
        with connected(large.port, GET) as another:
            assert another.recv(100).startswith(b"HTTP/1.1 503 ")
        with connection_of(2, large.port) as other:
            other.sendall(b"GET /shards/l/b.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert other.recv(100).startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: large.ask("/shards/l/b.txt").status == 200)


def test_the_threads_of_a_server_end_with_it(tmp_path):
    """Those that watch its clients, and those that index shards for them."""

    def serve_once(name):
        data = list_dataset(str(write_tar(tmp_path / name, {"b.txt": b"b"})))
        with in_this_process(data) as port:
            assert ask(port, f"/shards/{name.removesuffix('.tar')}/b.txt").body == b"b"

    serve_once("first.tar")  # threads that all servers of a process share begin
    before = {*threading.enumerate()}
    serve_once("second.tar")
    wait_until(lambda: {*threading.enumerate()} <= before)
