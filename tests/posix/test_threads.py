"""Threads, and what happens where none can be started."""

import threading

import pytest
from waiting import wait_until

from touchfs.errors import SourceError, TouchfsError
from touchfs.posix.threads import run_at_once, start_thread


def test_at_once_the_order_stays_and_the_first_error_counts() -> None:
    together = threading.Barrier(3)

    def work(number: int) -> int:
        together.wait(20)
        if number >= 7:
            raise TouchfsError(str(number))
        return number * number

    assert run_at_once(work, range(6), 3) == [number * number for number in range(6)]
    with pytest.raises(TouchfsError, match="7"):
        run_at_once(work, range(9), 3)
    assert run_at_once(work, [], 3) == run_at_once(work, [], 1) == []


def test_at_once_what_was_not_begun_is_not_begun_after_an_error() -> None:
    begun, raised = list[int](), threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number:
            raised.wait(60)
        raise TouchfsError(str(number))

    with pytest.raises(TouchfsError, match="0"):
        run_at_once(work, range(1000), 2)
    raised.set()
    wait_until(lambda: "at-once" not in {thread.name for thread in threading.enumerate()})
    assert len(begun) < 10


def test_where_some_threads_start_they_do_all_the_work_and_without_any_it_is_an_error(monkeypatch) -> None:
    room = [1]
    start = threading.Thread.start

    def start_if_there_is_room(thread: threading.Thread) -> None:
        if not room:
            raise RuntimeError("can't start new thread")
        room.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_there_is_room)
    assert run_at_once(str, range(5), 3) == list("01234")
    for call in (lambda: run_at_once(str, range(5), 3), lambda: start_thread(print, name="one")):
        with pytest.raises(SourceError, match="no thread can be started"):
            call()
