"""Small shards of other stores: several at once, here and in the processes of a pool."""

import threading

import pytest

from touchfs.cli.pool import process_pool
from touchfs.indexing.far_shards import is_far, run_far

_TOGETHER = threading.Barrier(4)


def squared(number: int) -> int:
    _TOGETHER.wait(20)
    return number * number


@pytest.mark.parametrize("has_pool", [False, True])
def test_several_at_once_in_order(monkeypatch, has_pool):
    monkeypatch.setenv("TOUCHFS_REQUESTS", "4")
    tasks, progress = [(number, 10) for number in range(8)], []
    if has_pool:
        with process_pool(2) as pool:
            results = list(run_far(squared, tasks, pool, lambda *each: progress.append(each)))
    else:
        results = list(run_far(squared, tasks, None, lambda *each: progress.append(each)))
    assert results == [number * number for number in range(8)]
    assert progress[-1] == (80, 80)


def test_large_ones_and_those_here_are_not_far():
    assert is_far("s3://bucket/a.tar", 1000)
    assert not is_far("s3://bucket/a.tar", 1 << 30)
    assert not is_far("/data/a.tar", 1000)
