"""The threads of a worker: who waits for whom."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from touchfs_mount.requests import pool as module
from touchfs_mount.requests.pool import Call, Pool, PoolLimits
from waiting import wait_until

from touchfs.core.errors import SourceError, SourceTimeoutError


class Loop:
    """Stands where a worker's loop does."""

    def __init__(self, limits: PoolLimits) -> None:
        self.pool = Pool(memoryview(bytearray(8 * limits.threads_max)).cast("q"), limits)
        self.answered: list[Call] = []
        self.go_on = threading.Event()

    def ask(self, share: str, function: Callable[[], Any] = lambda: None) -> Call:
        call = Call(share, self._answer, function)
        call.argument = call, function
        self.pool.submit(call)
        return call

    def _answer(self, argument: tuple[Call, Callable[[], Any]]) -> None:
        call, function = argument
        function()
        if call.error is None:
            self.answered.append(call)

    def hang(self, share: str) -> Call:
        return self.ask(share, self.go_on.wait)

    def turn(self) -> None:
        self.answered += self.pool.tick()

    def has_answered(self, *calls: Call) -> bool:
        self.turn()
        return set(calls) <= set(self.answered)

    def wait_for(self, *calls: Call) -> None:
        wait_until(lambda: self.has_answered(*calls))


@pytest.fixture
def loop(monkeypatch) -> Iterator[Callable[..., Loop]]:
    monkeypatch.setattr(module, "HUNG_SECONDS", 0.05)
    made: list[Loop] = []

    def make(**limits: Any) -> Loop:
        made.append(Loop(PoolLimits(**limits)))
        return made[-1]

    yield make
    for each in made:
        each.go_on.set()
        wait_until(lambda each=each: each.turn() or each.pool.is_idle)


def test_a_share_has_some_threads_only(loop, monkeypatch):
    monkeypatch.setattr(module, "HUNG_SECONDS", 1000)
    one = loop(threads=16, share_threads=2)
    hung = [one.hang("a") for _ in range(6)]
    one.wait_for(*[one.ask("b") for _ in range(20)])
    assert sum(call.began > 0 for call in hung) == 2
    one.go_on.set()
    one.wait_for(*hung)


def test_threads_that_hang_are_replaced(loop):
    one = loop(threads=8, share_threads=2)
    hung = [one.hang(f"{i}") for i in range(30)]
    wait_until(lambda: one.turn() or one.pool.hanging == hung)
    one.wait_for(one.ask("b"))
    assert not any(call in one.answered for call in hung)


def test_up_to_a_bound_beyond_which_they_are_refused(loop):
    one = loop(threads=8, share_threads=2, threads_max=12)
    one.wait_for(one.ask("good"))
    hung = [one.hang(f"{i}") for i in range(12 - module.RESERVED)]
    wait_until(lambda: one.turn() or len(one.pool.hanging) == len(hung))
    with pytest.raises(SourceTimeoutError, match="too many reads wait"):
        one.hang("0")
    with pytest.raises(SourceTimeoutError):
        one.ask("never asked before")
    one.wait_for(*[one.ask("good") for _ in range(20)])
    one.go_on.set()
    one.wait_for(*hung)
    one.wait_for(one.ask("0"))


def test_what_finds_no_thread_at_the_bound_is_refused(loop, monkeypatch):
    one = loop(threads=8, share_threads=2, threads_max=10)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(module, "HUNG_SECONDS", 1000)  # later ones would be refused at once
        calls = [one.hang(f"{i}") for i in range(30)]
    wait_until(lambda: one.turn() or len(one.answered) == 30 - (10 - module.RESERVED))
    assert all(isinstance(call.error, SourceTimeoutError) for call in one.answered)
    wait_until(lambda: one.turn() or [call for call in calls if call not in one.answered] == one.pool.hanging)


def test_a_call_is_given_up_in_time(loop):
    one = loop(share_threads=1, timeout_seconds=0.2)
    calls = [one.hang("a"), one.hang("a")]
    one.wait_for(*calls)
    assert [str(call.error) for call in calls] == ["no answer within 0.2 s"] * 2
    assert one.pool.is_idle
    one.go_on.set()
    one.wait_for(one.ask("a"))
    assert one.answered[:2] == calls, "and answered once"


def test_no_more_that_hang_are_kept_waiting_than_the_kernel_has_room_for(loop):
    one = loop(share_threads=2, hanging_max=3)
    calls = [one.hang("a") for _ in range(8)]
    wait_until(lambda: one.turn() or len(one.answered) == 5)
    assert one.answered == calls[3:]


def test_a_thread_outlives_what_it_runs(loop, caplog):
    one = loop()

    def fail() -> None:
        raise ValueError("it")

    one.ask("a", fail)
    one.wait_for(one.ask("a"))
    assert "a thread could not answer" in caplog.text


def test_shares_take_turns(loop, monkeypatch):
    """Neither the first nor the loudest has all the threads."""
    monkeypatch.setattr(module, "HUNG_SECONDS", 1000)
    one = loop(threads=6, share_threads=6)
    order: list[str] = []
    busy = [one.ask("loud", lambda: (one.go_on.wait(), order.append("loud"))) for _ in range(200)]
    quiet = one.ask("quiet", lambda: order.append("quiet"))
    one.go_on.set()
    one.wait_for(*busy, quiet)
    assert order.index("quiet") < 100


def test_without_a_thread_a_call_is_refused_and_with_few_it_waits(loop, monkeypatch):
    one, is_full = loop(threads=8), True
    start = threading.Thread.start

    def start_if_there_is_room(thread: threading.Thread) -> None:
        if is_full:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_there_is_room)
    monkeypatch.setattr(module, "_LACK_SECONDS", 0.05)
    for _ in range(3):
        with pytest.raises(SourceError, match="no thread can be started"):
            one.ask("a")
    assert one.pool.is_idle
    is_full = False
    wait_until(lambda: one.pool._starts_again < time.monotonic())
    one.wait_for(one.ask("a"))
    is_full = True
    one.wait_for(*[one.ask("a") for _ in range(20)])
    hung = one.hang("b")
    waiting = [one.ask("a") for _ in range(3)]
    one.wait_for(*waiting)
    assert all("no thread can be started" in str(call.error) for call in waiting)
    one.go_on.set()
    one.wait_for(hung)
    one.wait_for(one.ask("a"))
