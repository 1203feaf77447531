import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from touchfs.state.database import WouldWaitError
from touchfs.state.opens import Opens
from touchfs.state.store import StateStore

HEADER = """
import os, random, sys, threading, time
from touchfs.state.opens import Opens
from touchfs.state.store import StateStore
"""


@pytest.fixture
def opens(store):
    return Opens(store, store.add_mount(os.getpid()))


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


def test_those_that_another_process_opened_are_deleted_too(opens, store, path):
    others = Opens(store, store.add_mount(os.getpid()))
    for _ in range(1000):
        others.release(opens.open(), at_once=False)
    assert rows(path) < 300


def test_who_ends_leaves_nothing(opens, path):
    kept = opens.open()
    for _ in range(100):
        opens.release(opens.open(), at_once=False)
    opens.close()
    assert rows(path) == 1
    assert opens.text(kept, lambda connection: b"text") == b"text"


def test_who_must_not_wait_is_told(opens, store, path):
    opened = opens.open()
    with closing(StateStore(path)) as other, other.transaction():
        with pytest.raises(WouldWaitError):
            opens.text(opened, lambda connection: b"text", wait=False)
        with pytest.raises(WouldWaitError):
            for _ in range(1000):
                opens.release(opens.open(wait=False), at_once=False, wait=False)
    assert opens.text(opened, lambda connection: b"text", wait=False) == b"text"
    ids = [opens.open(wait=False) for _ in range(200)]
    assert len({opened, *ids}) == 201


def test_readers_in_many_threads_and_processes_get_one_text(opens, path):
    ids = [opens.open() for _ in range(20)]
    code = """
opens, ids = Opens(StateStore(sys.argv[1]), 1), sys.argv[2].split()
def make(connection):
    print("made", flush=True)
    time.sleep(0.002)
    return f"{os.getpid()} {threading.get_ident()}".encode()
def read():
    for one in random.sample(ids, len(ids)):
        told.add((one, opens.text(int(one), make)))
told, threads = set(), [threading.Thread(target=read) for _ in range(8)]
sys.stdin.read()
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*sorted(told), sep="\\n")
"""
    command = [sys.executable, "-c", HEADER + code, path, " ".join(map(str, ids))]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(4)
        ]
        for process in processes:
            process.stdin.close()
        lines = [process.stdout.read().splitlines() for process in processes]
        assert [process.wait() for process in processes] == [0] * 4
    assert sum(told.count("made") for told in lines) == 20, "once each"
    answers = [[line for line in told if line != "made"] for told in lines]
    assert len(answers[0]) == 20
    assert answers[1:] == answers[:1] * 3


def test_threads_of_one_process_open_and_release_at_once(opens):
    def turn(number):
        opened = opens.open()
        text = opens.text(opened, lambda connection: b"%d" % number)
        assert opens.text(opened, lambda connection: b"other") == text == b"%d" % number
        opens.release(opened)
        return opened

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(turn, range(1000)))) == 1000
