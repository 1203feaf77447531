"""Numbers of records that the processes of a mount share, whoever of them is killed."""

from __future__ import annotations

import os
import random
import signal
import time
from multiprocessing import get_context

import pytest
from waiting import wait_until

from touchfs.core.errors import FullError
from touchfs.store import shared_numbers
from touchfs.store.shared_numbers import Record, SharedNumbers

forking = get_context("fork")
MAX = 65_536  # a full table


def record(number: int) -> Record:
    return number % 7, -number, 2**62 + number, number << 32 | 5


def test_a_record_has_one_number_in_all_processes() -> None:
    numbers = SharedNumbers()
    queue = forking.SimpleQueue()

    def work(step: int) -> None:
        queue.put({each: numbers.add(record(each)) for each in range(5_000)[::step]})

    processes = [forking.Process(target=work, args=(step,)) for step in (1, -1, 3, -7)]
    for process in processes:
        process.start()
    given = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    first = max(given, key=len)
    assert sorted(first.values()) == list(range(1, 5_001))
    assert all(first[each] == number for some in given for each, number in some.items())
    assert all(numbers.find(record(each)) == number for each, number in first.items())
    assert all(numbers.record(number) == record(each) for each, number in first.items())
    assert numbers.record(0) is numbers.record(5_001) is numbers.find(record(5_000)) is None


def test_nothing_is_lost_or_given_twice_after_kills() -> None:
    numbers = SharedNumbers()

    def run(start: int) -> None:
        for each in range(start, start + 10**6):
            numbers.add(record(each))

    dice = random.Random(1)
    for start in range(5):
        process = forking.Process(target=run, args=(start * 10**6,))
        process.start()
        wait_until(lambda start=start: numbers.find(record(start * 10**6)) is not None)
        time.sleep(dice.random() * 0.02)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    last = numbers.add((1, 2, 3, 4))
    assert last > 5
    records = [numbers.record(number) for number in range(1, last + 1)]
    assert len(set(records)) == last
    # A process may be killed after it has counted a record, and before others can find it.
    lost = [each for each in records if each is not None and numbers.find(each) is None]
    assert len(lost) <= 5
    assert all(each is not None for each in records)


def test_there_is_an_end_and_guests_get_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_numbers, "RECORDS_MAX", MAX)
    monkeypatch.setattr(shared_numbers, "GUESTS_MAX", 100)
    numbers = SharedNumbers()
    for each in range(100):
        numbers.add(record(each), is_guest=True)
    with pytest.raises(FullError, match="other users use 100 names of slices"):
        numbers.add(record(100), is_guest=True)
    assert numbers.add(record(99), is_guest=True) == numbers.add(record(99)) == 100
    for each in range(100, MAX):
        numbers.add(record(each))
    with pytest.raises(FullError, match=f"{MAX} names of slices are in use: unmount and mount again"):
        numbers.add(record(MAX))
    assert numbers.add(record(7)) == 8


def test_nobody_waits_who_must_not() -> None:
    numbers = SharedNumbers()
    assert numbers.add_nowait(record(1)) == numbers.add_nowait(record(1)) == 1
    locked, done = forking.Event(), forking.Event()

    def hold() -> None:
        numbers._file.acquire()
        locked.set()
        done.wait()

    process = forking.Process(target=hold)
    process.start()
    locked.wait()
    assert numbers.add_nowait(record(2)) is None
    assert numbers.find(record(1)) == 1
    done.set()
    process.join()
    assert numbers.add_nowait(record(2)) == 2
