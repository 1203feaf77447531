"""When a worker's loop is idle, and when that is over."""

import os
import threading
from contextlib import ExitStack
from time import monotonic_ns

import pytest
from touchfs_mount.loop import pool
from touchfs_mount.loop.loop import CELLS, IDLE_MS, Loop
from touchfs_mount.loop.offload import CONTROL, DATA


@pytest.fixture
def pipe():
    with ExitStack() as stack:
        ends = os.pipe()
        for end in ends:
            stack.callback(os.close, end)
        yield ends


def test_idle_time_ends_when_it_is_over_or_before_the_worker_sleeps(pipe):
    requests, asker = pipe
    told = []

    def begin():
        told.append("begin")
        if len(told) == 1:
            os.write(asker, b"a request, while it is idle")
        return True

    def end():
        told.append("end")
        if told.count("end") == 2:
            os.write(asker, b"a request, while it sleeps")

    loop = Loop(requests, memoryview(bytearray(8 * CELLS)).cast("q"), begin_idle=begin, end_idle=end)
    for _ in range(2):
        assert loop._next_events(loop._poll)
        assert told == ["begin"]  # other requests may come before the one that is expected
    loop._busy_since = monotonic_ns() + IDLE_MS * 1_000_000  # such a request took long
    assert loop._next_events(loop._poll)
    assert told == ["begin", "end"]
    os.read(requests, 100)  # nothing waits any more
    assert loop._next_events(loop._poll)
    assert told == ["begin", "end", "begin", "end"]


@pytest.mark.parametrize(("kind", "wanted"), [(CONTROL, []), (DATA, ["begin", "end"])])
def test_it_is_not_idle_while_a_thread_hangs_in_the_control_directory(pipe, monkeypatch, kind, wanted):
    """That thread may be in the middle of a step of the iterator whose next step the idle loop would compute."""
    monkeypatch.setattr(pool, "HUNG_SECONDS", 0)
    times, begun, go_on = [], threading.Event(), threading.Event()

    def begin() -> bool:
        times.append("begin")
        return True

    def hang() -> None:
        begun.set()
        go_on.wait(60)

    counters = memoryview(bytearray(8 * CELLS)).cast("q")
    loop = Loop(pipe[0], counters, begin_idle=begin, end_idle=lambda: times.append("end"))
    call = pool.Call("change", hang, (), (kind, None))
    loop._pools[kind].submit(call)
    assert begun.wait(60)
    loop._pools[kind].tick()
    assert loop._pools[kind].hanging == [call]
    threading.Timer(0.05, go_on.set).start()
    assert loop._next_events(loop._poll)  # the end of the call
    assert times == wanted
    loop._pools[kind].end(loop._finished.popleft())
    os.eventfd_read(loop._wake)
    threading.Timer(0.05, os.write, (pipe[1], b"a request")).start()
    assert loop._next_events(loop._poll)
    assert times == [*wanted, "begin", "end"]
