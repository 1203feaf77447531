import os
import random
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context

import pytest

from touchfs.core.errors import WouldWaitError
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.patience import without_waiting
from touchfs.store.store import StateStore


@pytest.fixture
def table():
    return OpenTable()


@pytest.fixture
def opens(store, table):
    return Opens(store, table, os.getpid())


# Processes that share an OpenTable are forked.
forking = get_context("fork")


def rows(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT count(*) FROM open").fetchone()[0]


def test_the_text_is_made_at_the_first_read_and_stays(opens):
    first, second = opens.open(), opens.open()
    assert first != second
    steps = iter([b"one", b"two", b"three"])
    assert opens.text(second, lambda connection: next(steps)) == b"one"
    assert opens.text(first, lambda connection: next(steps)) == b"two"
    assert opens.text(second, lambda connection: next(steps)) == b"one"


def test_an_empty_text_is_a_text(opens):
    opened = opens.open()
    assert opens.text(opened, lambda connection: b"") == b""
    assert opens.text(opened, lambda connection: b"another") == b""


@pytest.mark.parametrize("at_once", [True, False])
def test_after_release_none_is_made(opens, at_once):
    made = []
    opened = opens.open()
    opens.text(opened, lambda connection: b"text")
    for _ in range(2):
        opens.release(opened, at_once=at_once)
    for _ in range(300):
        assert opens.text(opened, lambda connection: made.append(1) or b"again") in (b"text", b"")
        opens.release(opens.open(), at_once=at_once)
    assert opens.text(opened, lambda connection: made.append(1) or b"again") == b""
    assert not made


def test_of_one_that_was_never_read_none_is_made_either(opens):
    opened = opens.open()
    opens.release(opened)
    assert opens.text(opened, lambda connection: b"text") == b""


def test_an_error_while_it_is_made_changes_nothing(opens):
    opened = opens.open()
    with pytest.raises(ZeroDivisionError):
        opens.text(opened, lambda connection: b"%d" % (1 // 0))
    assert opens.text(opened, lambda connection: b"text") == b"text"


def test_rows_are_few_however_many_opens_there_were(opens, path):
    ids = set()
    for number in range(1000):
        opened = opens.open()
        ids.add(opened)
        opens.text(opened, lambda connection: b"text")
        opens.release(opened, at_once=False)
        assert rows(path) < 300, number
    assert len(ids) == 1000


def test_those_that_another_process_read_are_deleted_too(opens, store, table, path):
    others = Opens(store, table, os.getpid())
    for _ in range(1000):
        opened = opens.open()
        opens.text(opened, lambda connection: b"text")
        others.release(opened, at_once=False)
    assert rows(path) < 300


def test_who_ends_leaves_nothing(opens, path):
    kept, *others = (opens.open() for _ in range(100))
    for opened in (kept, *others):
        opens.text(opened, lambda connection: b"text")
    for opened in others:
        opens.release(opened, at_once=False)
    opens.flush()
    assert rows(path) == 1
    assert opens.text(kept, lambda connection: b"other") == b"text"


def test_who_must_not_wait_is_told(opens, store, path):
    opened, read = opens.open(), opens.open()
    opens.text(read, lambda connection: b"text")
    with closing(StateStore(path)) as other, other.transaction():
        with pytest.raises(WouldWaitError):
            without_waiting(opens.text, opened, lambda connection: b"text")
        opens.release(read)  # its row is deleted later
    assert without_waiting(opens.text, opened, lambda connection: b"text") == b"text"
    opens.flush()
    assert rows(path) == 1


def test_rows_that_killed_processes_left_are_deleted_by_the_next_one(opens, store, table, path):
    """What is still open stays."""
    held = opens.open()
    opens.text(held, lambda connection: b"held")

    def work():
        mine = Opens(StateStore(path), table, os.getppid())
        for _ in range(100):
            opened = mine.open()
            mine.text(opened, lambda connection: b"text")
            mine.release(opened, at_once=False)
        os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(3):
        process = forking.Process(target=work)
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert 1 < rows(path) <= 101
    with closing(StateStore(path)) as other:
        successor = Opens(other, table, os.getpid())
        assert successor.text(held, lambda connection: b"other") == b"held"
    assert rows(path) == 1


def test_readers_in_many_threads_and_processes_get_one_text(opens, table, path):
    ids = [opens.open() for _ in range(20)]
    queue = forking.SimpleQueue()

    def work():
        mine, made, answers = Opens(StateStore(path), table, os.getppid()), [], set()

        def make(connection):
            made.append(1)
            time.sleep(0.002)
            return f"{os.getpid()} {threading.get_ident()}".encode()

        def read():
            for one in random.sample(ids, len(ids)):
                answers.add((one, mine.text(one, make)))

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        queue.put((len(made), sorted(answers)))

    processes = [forking.Process(target=work) for _ in range(4)]
    for process in processes:
        process.start()
    outcomes = [queue.get() for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert sum(made for made, _ in outcomes) == 20, "once each"
    assert len(outcomes[0][1]) == 20
    assert all(answers == outcomes[0][1] for _, answers in outcomes)


def test_threads_of_one_process_open_and_release_at_once(opens):
    def turn(number):
        opened = opens.open()
        text = opens.text(opened, lambda connection: b"%d" % number)
        assert opens.text(opened, lambda connection: b"other") == text == b"%d" % number
        opens.release(opened)
        return opened

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(turn, range(1000)))) == 1000
