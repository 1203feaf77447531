import os
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from touchfs.core import jobs
from touchfs.core.progress import advance, each, listening, reached, stage


def test_nobody_need_listen() -> None:
    with stage(0.5, of=3):
        advance(1)
    reached(1, 2)
    assert list(each("abc")) == ["a", "b", "c"]


def test_stages_are_shares_of_the_whole() -> None:
    heard: list[int] = []
    with listening(heard.append, 1000):
        with stage(0.3):
            reached(1, 2)
            assert sum(heard) == 150
            reached(1, 4)  # less than it was: nothing new
            assert sum(heard) == 150
        assert sum(heard) == 300
        with stage(0.4, of=4):
            advance(1)
            assert sum(heard) == 400
            with stage(0.5):
                reached(1, 2)
                assert sum(heard) == 500
        assert sum(heard) == 700
    assert sum(heard) == 1000
    assert min(heard) > 0


def test_a_stage_that_fails_is_over() -> None:
    heard: list[int] = []
    with listening(heard.append, 10):
        with pytest.raises(ZeroDivisionError), stage(0.5):
            raise ZeroDivisionError
        assert sum(heard) == 5
        advance(3)
    assert sum(heard) == 10


def count_to(number: int) -> int:
    for _ in range(number):
        advance(1)
    return number


@pytest.mark.parametrize("kind", ["here", "threads", "processes"])
def test_tasks_anywhere_are_heard(kind: str, processes: Executor) -> None:
    heard: list[tuple[int, int]] = []
    tasks = [(number, number) for number in (5, 0, 700, 70)]

    def run(executor: Executor | None) -> list[int]:
        return list(jobs.run_sized(count_to, tasks, executor, progress=lambda done, total: heard.append((done, total))))

    with ThreadPoolExecutor(2) as threads:
        results = run({"here": None, "threads": threads, "processes": processes}[kind])
    assert results == [5, 0, 700, 70]
    assert {total for _, total in heard} == {775}
    done = [done for done, _ in heard]
    assert (done[0], done[-1]) == (0, 775)
    assert done == sorted(done)


def test_no_directory_for_temporary_files_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr("touchfs.core.progress.tempfile.gettempdir", refuse)
    with ThreadPoolExecutor(1) as threads:
        assert list(jobs.run_sized(count_to, [(3, 3)], threads)) == [3]


def test_a_signal_as_the_temporary_file_appears_leaves_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real_open = os.open

    def open_and_interrupt(*arguments: Any) -> int:
        os.close(real_open(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr("touchfs.core.progress.tempfile.gettempdir", lambda: str(tmp_path))
    with ThreadPoolExecutor(1) as threads, pytest.raises(KeyboardInterrupt):
        monkeypatch.setattr("touchfs.core.progress.os.open", open_and_interrupt)
        list(jobs.run_sized(count_to, [(3, 3)], threads))
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []
