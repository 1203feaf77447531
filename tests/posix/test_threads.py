"""Threads, and what happens where none can be started."""

import threading
from collections.abc import Iterator

import pytest
from waiting import wait_until

from touchfs.core.errors import SourceError, TouchfsError
from touchfs.posix.threads import ThreadPool, run_at_once, start_call, start_thread


def test_at_once_the_order_stays_and_the_first_error_counts() -> None:
    together = threading.Barrier(3)

    def work(number: int) -> int:
        together.wait(60)
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


def test_a_pool_keeps_the_order_and_few_tasks_ahead() -> None:
    taken = list[int]()

    def tasks() -> Iterator[int]:
        for number in range(10):
            taken.append(number)
            yield number

    pool = ThreadPool(3, "pool")
    for number, (task, future) in enumerate(pool.in_order(lambda number: 6 // (5 - number), tasks(), 4)):
        assert task == number and len(taken) == min(number + 5, 10)
        if number == 5:
            assert isinstance(future.exception(), ZeroDivisionError)
        else:
            assert future.result() == 6 // (5 - number)
    assert [thread.name for thread in threading.enumerate()].count("pool") == 3
    pool.finish()
    wait_until(lambda: "pool" not in {thread.name for thread in threading.enumerate()})


@pytest.mark.parametrize("end", ["finish", "cancel", "close"])
def test_a_pool_ends(end: str) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def work(number: int) -> int:
        begun.set()
        assert goes_on.wait(30)
        return number

    pool = ThreadPool(1, "ends")
    first, second = pool.submit(work, 1), pool.submit(work, 2)
    assert begun.wait(30)
    if end == "close":
        threading.Timer(0.05, goes_on.set).start()
    getattr(pool, end)()
    assert first.done() == (end == "close")
    goes_on.set()
    assert first.result(30) == 1
    assert second.result(30) == 2 if end == "finish" else second.cancelled()
    wait_until(lambda: "ends" not in {thread.name for thread in threading.enumerate()})


def test_a_call_has_an_outcome_or_is_cancelled() -> None:
    assert start_call(divmod, 7, 2, name="call").result() == (3, 1)
    assert isinstance(start_call(divmod, 7, 0, name="call").exception(), ZeroDivisionError)
    goes_on = threading.Event()
    cancelled = start_call(goes_on.wait, 60, name="cancelled")
    assert cancelled.cancel()
    goes_on.set()
    wait_until(lambda: "cancelled" not in {thread.name for thread in threading.enumerate()})
