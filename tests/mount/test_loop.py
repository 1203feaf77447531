"""When a worker's loop is idle, and when that is over."""

import os
from contextlib import ExitStack

import pytest
from touchfs_mount.loop.loop import CELLS, Loop


@pytest.fixture
def pipe():
    with ExitStack() as stack:
        ends = os.pipe()
        for end in ends:
            stack.callback(os.close, end)
        yield ends


def test_idle_time_ends_after_the_request_that_comes_or_before_it_sleeps(pipe):
    requests, asker = pipe
    told = []

    def begin():
        told.append("begin")
        if len(told) == 1:
            os.write(asker, b"a request, while it is idle")

    def end():
        told.append("end")
        if told.count("end") == 2:
            os.write(asker, b"a request, while it sleeps")

    loop = Loop(requests, memoryview(bytearray(8 * CELLS)).cast("q"), begin_idle=begin, end_idle=end)
    for wanted in (["begin"], ["begin", "end"], ["begin", "end", "begin", "end"], ["begin", "end", "begin", "end"]):
        if wanted == ["begin", "end", "begin", "end"] and told == ["begin", "end"]:
            os.read(requests, 100)  # nothing waits any more
        assert loop._next_events(loop._poll)
        assert told == wanted
