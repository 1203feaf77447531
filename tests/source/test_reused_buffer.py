"""A buffer is used again only when nothing can see it any more."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from touchfs.source.reused_buffer import BUFFER_SIZE, KEPT_MAX, ReusedBuffer


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_it_is_used_again():
    buffer = ReusedBuffer()
    first = address(buffer.view(1000))
    assert [address(buffer.view(length)) for length in (1, BUFFER_SIZE, 5)] == [first] * 3


@pytest.mark.parametrize("keep", [lambda view: view, lambda view: view[5:6], lambda view: np.frombuffer(view, "u1")])
def test_not_while_a_view_of_it_lives(keep):
    buffer = ReusedBuffer()
    kept = []
    for number in range(20):
        view = buffer.view(100)
        view[:] = bytes([number]) * 100
        kept.append(keep(view))
        del view
    assert [each[0] for each in kept] == list(range(20))


@pytest.mark.parametrize("length", [0, 1, BUFFER_SIZE + 1, KEPT_MAX, KEPT_MAX + 1])
def test_its_length(length):
    assert len(ReusedBuffer().view(length)) == length


def test_threads_share_nothing():
    buffer = ReusedBuffer()

    def work(number: int) -> None:
        for _ in range(3000):
            view = buffer.view(64)
            view[:] = bytes([number]) * 64
            assert bytes(view) == bytes([number]) * 64

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
