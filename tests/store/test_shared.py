"""What the processes of a mount share in memory, whoever of them is killed."""

import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import pytest

from touchfs.core.errors import FullError
from touchfs.posix.memory.shared_log import SharedLog
from touchfs.store import open_table
from touchfs.store.open_table import OpenTable
from touchfs.store.plans import GUESTS_MAX, PLANS_MAX, SharedPlans

forking = get_context("fork")


def in_children(work, count=4):
    """What `work` returns in so many forked processes, each called with its number."""
    queue = forking.SimpleQueue()
    processes = [forking.Process(target=lambda number=number: queue.put(work(number))) for number in range(count)]
    for process in processes:
        process.start()
    results = [queue.get() for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return results


def killed_while(work, dice):
    """A child does this over and over until it is killed: at any moment, but not before it has done it once."""
    begun = forking.Event()

    def run():
        work()
        begun.set()
        while True:
            work()

    process = forking.Process(target=run)
    process.start()
    begun.wait()
    time.sleep(dice.random() * 0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()


class TestOpenTable:
    def test_ids_are_given_once_whoever_opens(self):
        table = OpenTable()

        def opens(number):
            with ThreadPoolExecutor(4) as threads:
                return list(threads.map(lambda _: table.open(), range(500)))

        given = [each for _ in range(4) for each in in_children(opens, 1)]
        ids = [each for some in given for each in some]
        assert len(set(ids)) == 2000
        assert all(map(table.is_open, ids))
        for each in ids:
            table.release(each)
            table.release(each)
        assert not any(map(table.is_open, ids))
        assert not {table.open() for _ in range(2000)} & set(ids)

    def test_one_text_for_all_processes_and_threads(self):
        table = OpenTable()
        ids = [table.open() for _ in range(50)]

        def read(number):
            with ThreadPoolExecutor(4) as threads:
                texts = threads.map(lambda each: table.text(each, lambda: b"%d %d" % (os.getpid(), each)), ids)
                return list(texts)

        first, *others = [each for _ in range(4) for each in in_children(read, 1)]
        assert others == [first] * 3
        assert [table.text(each, lambda: b"other") for each in ids] == first

    def test_texts_of_all_lengths(self):
        table = OpenTable()
        for size in (0, 1, 4095, 4096, 4097, 5_000_000):
            opened = table.open()
            text = os.urandom(size)
            assert table.text(opened, lambda text=text: text) == text
            assert table.text(opened, lambda: b"other") == text
            table.release(opened)
            assert table.text(opened, lambda: b"other") == b""

    def test_an_error_while_a_text_is_made_leaves_none(self):
        table = OpenTable()
        opened = table.open()
        with pytest.raises(ZeroDivisionError):
            table.text(opened, lambda: b"%d" % (1 // 0))
        assert table.text(opened, lambda: b"text") == b"text"

    def test_its_memory_is_bounded_and_given_back(self, monkeypatch):
        monkeypatch.setattr(open_table, "TEXTS_MAX", 1 << 20)
        table = OpenTable()
        for _ in range(10):
            opened = table.open()
            table.text(opened, lambda: bytes(900_000))
            with pytest.raises(FullError, match="close some"):
                table.text(table.open(), lambda: bytes(900_000))
            table.release(opened)

    def test_it_is_whole_after_kills(self):
        table = OpenTable()
        held = table.open()
        table.text(held, lambda: b"held")

        def work():
            opened = table.open()
            assert table.text(opened, lambda: b"x" * 5000) == b"x" * 5000
            table.release(opened)

        dice = random.Random(1)
        for _ in range(5):
            killed_while(work, dice)
        work()
        assert table.text(held, lambda: b"other") == b"held"

    def test_there_is_an_end(self, monkeypatch):
        monkeypatch.setattr(open_table, "_SLOTS", 8)
        monkeypatch.setattr(open_table, "_SLOT_MASK", 7)
        table = OpenTable()
        ids = [table.open() for _ in range(8)]
        with pytest.raises(FullError, match="close some"):
            table.open()
        table.release(ids[3])
        table.open()


class TestLog:
    def test_all_see_the_same_lines_in_the_same_order(self):
        log = SharedLog("test")
        seen = in_children(lambda number: [log.append(lambda _: f"{number}") and None for _ in range(200)])
        assert len(seen) == 4
        assert sorted(log.lines()) == sorted("0123" * 200)
        assert in_children(lambda number: log.lines(), 2) == [log.lines()] * 2

    def test_lines_are_whole_after_kills(self):
        log, dice = SharedLog("test"), random.Random(1)
        for _ in range(5):
            killed_while(lambda: log.append(lambda _: "line " * 100), dice)
        log.append(lambda _: "last")
        *lines, last = log.lines()
        assert set(lines) == {"line " * 100} and last == "last"


class TestPlans:
    def test_a_plan_has_one_number_in_all_processes(self):
        plans = SharedPlans()
        names = [f"max={number}" for number in range(1, 50)]
        first, *others = in_children(lambda number: {name: plans.number(name) for name in names[:: (-1) ** number]})
        assert others == [first] * 3
        assert sorted(first.values()) == list(range(1, 50))
        assert plans.names() == sorted(first.items(), key=lambda each: each[1])
        assert all(plans.name(number) == name for name, number in first.items())
        assert plans.name(50) is None

    def test_there_is_an_end(self):
        plans = SharedPlans()
        for number in range(PLANS_MAX):
            plans.number(f"max={number + 1}")
        with pytest.raises(FullError, match="plans are registered"):
            plans.number("max=2000")
        assert plans.number("max=1000") == 1000

    def test_guests_get_a_part_of_them(self):
        plans = SharedPlans()
        for number in range(GUESTS_MAX):
            plans.number(f"max={number + 1}", is_guest=True)
        with pytest.raises(FullError, match="plans of other users are registered"):
            plans.number("max=2000", is_guest=True)
        assert plans.number("max=2000") == GUESTS_MAX + 1
        assert plans.number("max=2000", is_guest=True) == GUESTS_MAX + 1
        assert plans.number("max=1") == plans.number("max=1", is_guest=True) == 1
        assert plans.name(1) == "max=1"
        assert plans.names()[-1] == ("max=2000", GUESTS_MAX + 1)


def test_threads_of_a_process_read_while_it_appends():
    """They change places at any moment, as those of a worker do."""
    log, switch_interval = SharedLog("test"), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            reading = [threads.submit(lambda: [len(log.lines()) for _ in range(3000)]) for _ in range(7)]
            for number in range(2000):
                log.append(lambda known, number=number: str(number))
            assert all(counts == sorted(counts) for counts in (each.result() for each in reading))
    finally:
        sys.setswitchinterval(switch_interval)
    assert log.lines() == [str(number) for number in range(2000)]
