"""Small shards of other stores: several at once, here and in the processes of a pool."""

import threading

import pytest

from touchfs.indexing.far_shards import run_shards

_TOGETHER = threading.Barrier(4)


def squared(number: int) -> int:
    _TOGETHER.wait(20)
    return number * number


@pytest.mark.parametrize("has_pool", [False, True])
def test_several_at_once_in_order(monkeypatch, processes, has_pool):
    monkeypatch.setenv("TOUCHFS_REQUESTS", "4")
    tasks, progress = [(number, f"s3://bucket/{number}.tar", 10) for number in range(8)], []
    pool = processes if has_pool else None
    results = list(run_shards(squared, tasks, pool, lambda *each: progress.append(each)))
    assert results == [number * number for number in range(8)]
    assert progress[-1] == (80, 80)


def thread_of(number: int) -> tuple[int, str]:
    return number, threading.current_thread().name


def test_large_ones_and_those_here_are_not_far(monkeypatch):
    monkeypatch.setenv("TOUCHFS_REQUESTS", "4")
    tasks = [
        (0, "s3://bucket/a.tar", 1 << 30),
        (1, "/data/a.tar", 1000),
        (2, "s3://b/a.tar", 9),
        (3, "s3://b/b.tar", 9),
    ]
    results = list(run_shards(thread_of, tasks, None, lambda *each: None))
    assert [number for number, _ in results] == [2, 3, 0, 1]
    assert [name == "MainThread" for _, name in results] == [False, False, True, True]
