"""Things that are made once: by whom, who waits, and what a fork has."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from touchfs.posix.made_once import MadeOnce


def test_threads_that_ask_at_once_get_one_thing() -> None:
    things: MadeOnce[str, object] = MadeOnce(4)
    ready, made = threading.Barrier(8), []

    def ask() -> object:
        ready.wait()
        return things.get("a", lambda: made.append(1) or object())

    with ThreadPoolExecutor(8) as pool:
        assert len({id(each.result()) for each in [pool.submit(ask) for _ in range(8)]}) == 1
    assert made == [1]


def test_nobody_waits_for_the_making_of_another_thing() -> None:
    things: MadeOnce[str, str] = MadeOnce(4)
    goes_on = threading.Event()
    slow = threading.Thread(target=lambda: things.get("slow", lambda: str(goes_on.wait(60))))
    slow.start()
    assert things.get("quick", lambda: "made") == "made"
    assert things.find("slow") is None
    goes_on.set()
    slow.join()
    assert things.find("slow") == "True"


def test_the_last_ones_are_kept() -> None:
    things: MadeOnce[int, int] = MadeOnce(2)
    for number in (1, 2, 1, 3):
        things.get(number, lambda number=number: number * 10)
    assert [things.find(number) for number in (1, 2, 3)] == [10, None, 30]
    things.forget()
    assert things.find(1) is None


def test_an_error_is_raised_and_the_next_one_makes_it() -> None:
    things: MadeOnce[str, int] = MadeOnce(2)
    with pytest.raises(ZeroDivisionError):
        things.get("a", lambda: 1 // 0)
    assert things.get("a", lambda: 7) == 7


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_does_not_wait_for_threads_of_its_parent() -> None:
    things: MadeOnce[str, str] = MadeOnce(2)
    making, goes_on = threading.Event(), threading.Event()

    def make() -> str:
        making.set()
        return str(goes_on.wait(60))

    slow = threading.Thread(target=lambda: things.get("a", make))
    slow.start()
    making.wait()
    pid = os.fork()
    if not pid:
        os._exit(0 if things.get("a", lambda: "own") == "own" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    goes_on.set()
    slow.join()
