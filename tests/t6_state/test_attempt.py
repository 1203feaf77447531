"""What is done in a transaction before it is known whether it is wanted."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing

import pytest

from touchfs.errors import StateError
from touchfs.state.database import WouldWaitError
from touchfs.state.opens import Opens
from touchfs.state.store import StateStore


@pytest.fixture
def other(path):
    with closing(StateStore(path)) as opened:
        yield opened


def test_it_is_done_when_it_is_committed(store, other):
    assert store.attempt(lambda connection: store.plan_number("one")) == 1
    assert store.commit()
    assert other.plans() == [("one", 1)]


def test_nothing_is_committed_twice_or_before(store):
    assert not store.commit()
    store.attempt(lambda connection: 1)
    assert [store.commit(), store.commit()] == [True, False]


@pytest.mark.parametrize("undo", [StateStore.undo, StateStore.plans, lambda store: store.add_mount(os.getpid())])
def test_whatever_comes_first_undoes_it(store, other, undo):
    store.attempt(lambda connection: store.plan_number("one"))
    undo(store)
    assert not store.commit()
    assert store.plans() == other.plans() == []


def test_another_attempt_undoes_it(store, other):
    store.attempt(lambda connection: store.plan_number("one"))
    store.attempt(lambda connection: store.plan_number("two"))
    assert store.commit()
    assert other.plans() == [("two", 1)]


def test_nobody_else_changes_the_store_until_then(store, other):
    store.attempt(lambda connection: store.plan_number("one"))
    with pytest.raises(WouldWaitError), other.transaction(wait=False):
        pass
    store.undo()
    assert other.plan_number("two") == 1


def test_a_thread_waits_for_its_end(store):
    store.attempt(lambda connection: store.plan_number("one"))
    begun = threading.Event()

    def waiting():
        begun.set()
        return store.plan_number("two")

    with ThreadPoolExecutor(1) as threads:
        number = threads.submit(waiting)
        begun.wait()
        assert not wait([number], 0.05).done
        store.commit()
        assert number.result() == 2


def test_an_act_that_fails_is_undone(store, other):
    def act(connection):
        store.plan_number("one")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.attempt(act)
    assert not store.commit()
    assert other.plan_number("two") == 1


def test_it_is_not_for_who_waits_for_the_disk(path):
    with closing(StateStore(path, fsync=True)) as store:
        with pytest.raises(WouldWaitError):
            store.attempt(lambda connection: store.plan_number("one"))
        assert store.plans() == []


def test_it_is_undone_when_the_process_ends(path, other):
    code = "store.attempt(lambda connection: store.plan_number('one')); os.kill(os.getpid(), 9)"
    begin = "import os, sys; from touchfs.state.store import StateStore; store = StateStore(sys.argv[1]); "
    assert subprocess.run([sys.executable, "-c", begin + code, path], check=False).returncode == -9
    assert other.plans() == []


class TestOpens:
    @pytest.fixture
    def opens(self, store):
        return Opens(store, store.add_mount(os.getpid()))

    def test_a_text_made_ahead_is_the_text(self, opens):
        opened = opens.open()
        opens.make_ahead(opened, lambda connection: b"one")
        assert opens.made_ahead(opened) == b"one"
        assert opens.made_ahead(opened) is None
        assert opens.text(opened, lambda connection: b"two") == b"one"

    def test_one_that_is_not_read_next_was_never_made(self, opens, other):
        first, second = opens.open(), opens.open()
        opens.make_ahead(first, lambda connection: b"one")
        assert opens.made_ahead(second) is None
        assert opens.text(second, lambda connection: b"two") == b"two"
        assert opens.made_ahead(first) is None
        assert Opens(other, 1).text(first, lambda connection: b"three") == b"three"

    def test_none_is_made_of_what_was_read_or_released(self, opens, store):
        read, released = opens.open(), opens.open()
        opens.text(read, lambda connection: b"one")
        opens.release(released)
        for opened in (read, released):
            with pytest.raises(WouldWaitError):
                opens.make_ahead(opened, lambda connection: store.plan_number("made") and b"two")
        assert opens.made_ahead(read) is None
        assert store.plans() == []

    def test_who_opens_a_file_is_told_why_there_are_no_rows(self, opens, store):
        store.close()
        opens.tidy()
        with pytest.raises(StateError, match="closed"):
            opens.open()

    def test_rows_are_made_while_there_is_time(self, opens, other):
        ids = set()
        for _ in range(500):
            opens.tidy()
            with other.transaction():
                ids.add(opens.open(wait=False))
        assert len(ids) == 500
