"""What is done in a transaction before it is known whether it is wanted."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing

import pytest

from touchfs.errors import StateError, WouldWaitError
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.patience import without_waiting
from touchfs.store.store import StateStore


def add(store, name):
    """Change something."""
    return store.shard_ids([(name, "x")])[0]


def added(store):
    with store.transaction(write=False) as connection:
        return [path.decode() for (path,) in connection.execute("SELECT path FROM shard ORDER BY id")]


@pytest.fixture
def other(path):
    with closing(StateStore(path)) as opened:
        yield opened


def test_it_is_done_when_it_is_committed(store, other):
    assert store.attempt(lambda connection: add(store, "one")) == 1
    assert store.commit()
    assert added(other) == ["one"]


def test_nothing_is_committed_twice_or_before(store):
    assert not store.commit()
    store.attempt(lambda connection: 1)
    assert [store.commit(), store.commit()] == [True, False]


@pytest.mark.parametrize("undo", [StateStore.rollback, added, lambda store: store.add_mount(os.getpid())])
def test_whatever_comes_first_undoes_it(store, other, undo):
    store.attempt(lambda connection: add(store, "one"))
    undo(store)
    assert not store.commit()
    assert added(store) == added(other) == []


def test_another_attempt_undoes_it(store, other):
    store.attempt(lambda connection: add(store, "one"))
    store.attempt(lambda connection: add(store, "two"))
    assert store.commit()
    assert added(other) == ["two"]


def test_nobody_else_changes_the_store_until_then(store, other):
    store.attempt(lambda connection: add(store, "one"))
    with pytest.raises(WouldWaitError):
        without_waiting(other.transaction().begin)
    store.rollback()
    assert add(other, "two") == 1


def test_a_thread_waits_for_its_end(store):
    store.attempt(lambda connection: add(store, "one"))
    begun = threading.Event()

    def waiting():
        begun.set()
        return add(store, "two")

    with ThreadPoolExecutor(1) as threads:
        number = threads.submit(waiting)
        begun.wait()
        assert not wait([number], 0.05).done
        store.commit()
        assert number.result() == 2


def test_an_act_that_fails_is_undone(store, other):
    def act(connection):
        add(store, "one")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.attempt(act)
    assert not store.commit()
    assert add(other, "two") == 1


def test_who_waits_for_the_disk_does_so_after_the_commit(path, other):
    with closing(StateStore(path, fsync=True)) as store:
        store.attempt(lambda connection: add(store, "one"))
        assert added(other) == []
        assert store.commit()
        store.pending_sync()()
        assert added(other) == ["one"]


def test_it_is_undone_when_the_process_ends(path, other):
    code = "store.attempt(lambda connection: store.shard_ids([('one', 'x')])); os.kill(os.getpid(), 9)"
    begin = "import os, sys; from touchfs.store.store import StateStore; store = StateStore(sys.argv[1]); "
    assert subprocess.run([sys.executable, "-c", begin + code, path], check=False).returncode == -9
    assert added(other) == []


class TestOpens:
    @pytest.fixture
    def opens(self, store):
        opens = Opens(store, OpenTable(), os.getpid())
        opens.text(opens.open(), lambda connection: b"the first")
        return opens

    def test_a_text_made_ahead_is_the_text(self, opens):
        opened = opens.open()
        assert opens.attempt(opened, lambda connection: b"one") == b"one"
        assert opens.commit(opened)
        assert not opens.commit(opened)
        assert opens.text(opened, lambda connection: b"two") == b"one"

    def test_one_that_is_not_read_next_was_never_made(self, opens):
        first, second = opens.open(), opens.open()
        opens.attempt(first, lambda connection: b"one")
        assert opens.text(second, lambda connection: b"two") == b"two"
        assert not opens.commit(first)
        assert opens.text(first, lambda connection: b"three") == b"three"

    def test_none_is_made_of_what_was_read_or_released(self, opens, store):
        read, released = opens.open(), opens.open()
        opens.text(read, lambda connection: b"one")
        opens.release(released)
        for opened in (read, released):
            with pytest.raises(WouldWaitError):
                opens.attempt(opened, lambda connection: add(store, "made") and b"two")
        assert not opens.commit(read)
        assert added(store) == []

    def test_one_that_is_released_before_it_is_read_is_undone(self, opens, store):
        opened = opens.open()
        opens.attempt(opened, lambda connection: add(store, "made") and b"one")
        opens.release(opened)
        assert not opens.commit(opened)
        assert opens.text(opened, lambda connection: b"two") == b""
        assert added(store) == []

    def test_who_reads_a_file_is_told_why_there_is_no_store(self, opens, store):
        opened = opens.open()
        store.close()
        opens.delete_released()
        with pytest.raises(StateError, match="closed"):
            opens.text(opened, lambda connection: b"one")
