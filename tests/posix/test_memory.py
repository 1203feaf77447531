"""Objects that one process sends to another through memory arrive whole, and memory is used again."""

import multiprocessing
import os
import pickle
import signal
from multiprocessing.connection import Connection

import numpy as np
import pytest

from touchfs.core.errors import SourceError
from touchfs.posix.memory.packed import Sender

pytestmark = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")


def value(number: int) -> list[object]:
    size = [0, 10, 70_000, 3_000_000][number % 4]
    return [number, bytes([number % 256]) * size, np.full(size, number, np.int32), {"text": "x" * size}]


def serve(connection: Connection) -> None:
    """Send `value(n)` for each number that arrives; with -1 the number of files in memory."""
    sender = pickle.loads(pickle.dumps(Sender()))
    while (number := connection.recv()) is not None:
        links = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path)]
        connection.send(
            sum("memfd:touchfs (deleted)" in link for link in links) if number < 0 else sender.pack(value(number))
        )


@pytest.fixture(params=["fork", "spawn"])
def server(request):
    context = multiprocessing.get_context(request.param)
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there,))
    process.start()
    there.close()
    yield here, process
    if process.is_alive():
        here.send(None)
    process.join()


def ask(connection, number):
    connection.send(number)
    return connection.recv()


def equal(one, other):
    return one[:2] == other[:2] and np.array_equal(one[2], other[2]) and one[3] == other[3]


def test_objects_arrive_whole_and_memory_is_used_again(server):
    connection, _ = server
    kept = [ask(connection, number) for number in range(40)]
    assert all(equal(each, value(number)) for number, each in enumerate(kept))
    assert ask(connection, -1) == 1
    for number in range(8):
        connection.send(number)
    connection.poll(None)
    assert all(equal(connection.recv(), value(number)) for number in range(8))
    assert ask(connection, -1) <= 8


def test_a_sender_that_was_killed_is_named(server):
    connection, process = server
    connection.send(2)
    packed = connection.recv_bytes()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with pytest.raises(SourceError, match="has ended"):
        pickle.loads(packed)


def test_what_cannot_be_pickled_raises_where_it_is_sent():
    sender = Sender()
    with pytest.raises((pickle.PicklingError, AttributeError)):
        sender.pack([b"x" * 100_000, lambda: None])
    assert pickle.loads(pickle.dumps(sender.pack([1]))) == [1]
    assert len(sender._files) == 1
