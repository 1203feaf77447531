import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import count, islice
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from touchfs.cli.pool import process_pool
from touchfs.core import jobs
from touchfs.core.errors import TouchfsError


@pytest.fixture(params=["here", "threads", "processes"], scope="module")
def executor(request: pytest.FixtureRequest, processes: Executor) -> Iterator[Executor | None]:
    with ThreadPoolExecutor(3) as threads:
        yield {"here": None, "threads": threads, "processes": processes}[request.param]


def square(number: int) -> int:
    time.sleep(0.002 * (number % 3))
    return number * number


def inverse(number: int) -> float:
    return 1 / number


def own_process(_: int) -> int:
    return os.getpid()


def die(number: int) -> None:
    os._exit(number)


def test_results_come_in_order(executor: Executor | None) -> None:
    finished: list[int] = []
    results = list(jobs.run(square, range(50), executor, finished.append))
    assert results == [n * n for n in range(50)]
    assert sorted(finished) == results


def test_no_tasks(executor: Executor | None) -> None:
    assert list(jobs.run(square, [], executor)) == []


def test_no_process_is_started_for_a_single_task() -> None:
    own = [os.getpid()]
    with process_pool(2) as pool:
        assert list(jobs.run(own_process, [0], pool)) == list(jobs.run_sized(own_process, [(0, 1)], pool)) == own
        assert own[0] not in jobs.run(own_process, range(2), pool)


def test_tasks_are_drawn_little_by_little(executor: Executor | None) -> None:
    drawn = count()
    assert list(islice(jobs.run(square, drawn, executor), 5)) == [0, 1, 4, 9, 16]
    assert next(drawn) <= jobs.AHEAD + 5


def test_the_first_error_is_raised(executor: Executor | None) -> None:
    with pytest.raises(ZeroDivisionError):
        list(jobs.run(inverse, [1, 2, 0, *range(1, 1000)], executor))


def test_an_error_in_drawing_tasks_is_raised(executor: Executor | None) -> None:
    with pytest.raises(ZeroDivisionError):
        list(jobs.run(square, (1 // n for n in [1, 1, 0, 1]), executor))


def test_after_an_error_nothing_runs_and_all_that_ran_was_told() -> None:
    begun: list[int] = []
    ended: list[int] = []
    told: list[int] = []
    futures: list[Future[int]] = []
    together = threading.Barrier(2)

    class Noting(ThreadPoolExecutor):
        def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
            futures.append(super().submit(*arguments, **options))
            return futures[-1]

    def work(number: int) -> int:
        begun.append(number)
        if number < 2:
            together.wait(60)
        if number == 1:
            raise ZeroDivisionError
        wait_until(lambda: len(futures) == 200 and all(each.done() or each.running() for each in futures))
        ended.append(number)
        return number

    with Noting(2) as executor:
        with pytest.raises(ZeroDivisionError):
            list(jobs.run(work, range(200), executor, told.append))
        assert all(future.done() for future in futures)
        assert sorted(ended) == sorted(told) == sorted(set(begun) - {1})
        assert len(begun) < 10


def test_a_worker_that_dies() -> None:
    with ProcessPoolExecutor(1, get_context("forkserver")) as executor:
        with pytest.raises(TouchfsError, match="a worker died"):
            list(jobs.run(die, [3, 3], executor))
        with pytest.raises(TouchfsError, match="a worker died"):
            list(jobs.run(square, [1], executor))


def wait_to_die(stop: str, number: int) -> int:
    if number == 0:
        return number
    wait_until(lambda: number == 1 and os.path.exists(stop), 600)
    os._exit(3)


def test_a_worker_that_dies_while_tasks_are_cancelled(tmp_path: Path) -> None:
    stop, others = tmp_path / "stop", active_children()
    executor = ProcessPoolExecutor(2, get_context("forkserver"))
    results = jobs.run(partial(wait_to_die, str(stop)), range(jobs.AHEAD), executor)
    assert next(results) == 0
    threading.Timer(0.2, stop.touch).start()
    closing = threading.Thread(target=results.close, daemon=True)
    closing.start()
    closing.join(30)
    for child in {*active_children()} - {*others}:  # none, unless it hangs
        child.kill()
    assert not closing.is_alive()
    executor.shutdown()


def test_one_value_is_made_ahead_until_an_error() -> None:
    made: list[int] = []

    def values() -> Iterator[int]:
        for number in range(3):
            made.append(number)
            yield number
        raise TouchfsError("damaged")

    ahead = jobs.one_ahead(values())
    assert next(ahead) == 0
    wait_until(lambda: made == [0, 1])
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(TouchfsError, match="damaged"):
        next(ahead)
    assert made == [0, 1, 2] and [*jobs.one_ahead(iter("ab"))] == ["a", "b"] and [*jobs.one_ahead(iter(""))] == []
