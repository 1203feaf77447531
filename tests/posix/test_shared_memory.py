"""What forked processes share in memory: cells, a text, and a file with a lock."""

import errno
import fcntl
import os
import signal
from multiprocessing import get_context

import pytest

from touchfs.posix.memory.shared import SharedFile, SharedText, shared_cells

forking = get_context("fork")


def in_child(work) -> None:
    process = forking.Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_cells_are_runs_that_begin_with_zeros() -> None:
    one, three, none, two = shared_cells(1, 3, 0, 2)
    assert [run.tolist() for run in (one, three, none, two)] == [[0], [0, 0, 0], [], [0, 0]]

    def write() -> None:
        one[0], three[2], two[0] = -1, 2**63 - 1, -(2**63)

    in_child(write)
    assert [run.tolist() for run in (one, three, two)] == [[-1], [0, 0, 2**63 - 1], [-(2**63), 0]]


def test_a_text_is_known_to_all_until_it_is_cleared() -> None:
    text = SharedText()
    assert not text and text.text() == ""
    in_child(lambda: text.set("the disk is ü" + "x" * 9000))
    assert text and text.text() == "the disk is ü" + "x" * (4096 - 14)
    in_child(text.clear)
    assert not text and text.text() == ""


def test_a_lock_is_of_one_thread_until_it_is_released_or_its_process_is_killed() -> None:
    file = SharedFile("test")
    with file:
        assert not file.acquire(blocking=False)
    held = forking.Event()

    def hold() -> None:
        file.acquire()
        held.set()
        signal.pause()

    process = forking.Process(target=hold)
    process.start()
    held.wait()
    assert not file.acquire(blocking=False)
    process.kill()
    with file:
        assert not file.acquire(blocking=False)
    process.join()


def test_a_lock_that_the_system_refuses_is_free_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    file = SharedFile("test")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "lockf", refuse)
        for blocking in (True, False):
            with pytest.raises(OSError, match="No locks"):
                file.acquire(blocking=blocking)
    assert file.acquire(blocking=False)
