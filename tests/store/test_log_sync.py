"""Waiting for the disk together: nobody is answered before the change is durable, and one sync serves many changes."""

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from multiprocessing import get_context

import pytest
from waiting import wait_until

from touchfs.core.errors import StateError
from touchfs.store import log_sync
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.patience import without_waiting
from touchfs.store.store import StateStore

THREADS = 16
forking = get_context("fork")


class Disk:
    """The real fdatasync, which waits for `gate`, fails with `error`, and copies the state that a power cut leaves."""

    def __init__(self, path):
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.count = 0
        self.error = None
        self._path, self._sync = path, os.fdatasync

    def fdatasync(self, descriptor):
        self.begun.set()
        self.gate.wait()
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        self._sync(descriptor)
        copy = f"{self._path}.cut{self.count + 1}"
        for suffix in ("", "-wal"):
            shutil.copyfile(self._path + suffix, copy + suffix)
        self.count += 1

    def after_a_power_cut(self):
        """The shards in the store if the power failed now."""
        with closing(StateStore(f"{self._path}.cut{self.count}")) as store:
            return shards_in(store)


def shards_in(store):
    with store.transaction(write=False) as connection:
        return {path.decode() for (path,) in connection.execute("SELECT path FROM shard")}


def add(store, name):
    return store.shard_ids([(name, "x")])[0]


@pytest.fixture
def disk(path, monkeypatch):
    disk = Disk(path)
    monkeypatch.setattr(log_sync.os, "fdatasync", disk.fdatasync)
    return disk


@pytest.fixture
def durable(path, disk):
    with closing(StateStore(path, fsync=True)) as opened:
        yield opened


@pytest.fixture
def other(path, durable):
    with closing(StateStore(path)) as opened:
        yield opened


def test_a_lone_writer_syncs_once_for_each_change(durable, disk):
    for number in range(20):
        add(durable, f"/{number}")
        assert disk.count == number + 1
    # SQLite itself syncs only to empty its log (a thousand pages).
    assert durable._connection.execute("PRAGMA synchronous").fetchone() == (1,)


def test_who_only_looks_does_not_sync(durable, disk):
    add(durable, "/a")
    assert shards_in(durable) == {"/a"}
    assert disk.count == 1


def test_no_answer_before_the_change_is_durable(durable, other, disk):
    """Meanwhile the store is not locked."""
    disk.gate.clear()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(add, durable, "/a")
        wait_until(lambda: shards_in(other) == {"/a"})
        assert add(other, "/b") == 2
        assert not wait([answer], 0.05).done
        disk.gate.set()
        assert answer.result() == 1
    assert disk.after_a_power_cut() >= {"/a"}


def test_one_sync_serves_all_who_committed_before_it(durable, other, disk):
    names = {f"/{number}" for number in range(THREADS)}
    disk.gate.clear()
    with ThreadPoolExecutor(THREADS + 1) as threads:
        first = threads.submit(add, durable, "/first")
        disk.begun.wait()
        answers = [threads.submit(add, durable, name) for name in names]
        wait_until(lambda: shards_in(other) == names | {"/first"})
        assert not wait([first, *answers], 0.05).done
        disk.gate.set()
        assert len({answer.result() for answer in [first, *answers]}) == THREADS + 1
    assert disk.count == 2
    assert disk.after_a_power_cut() == names | {"/first"}


def test_what_was_answered_survives_a_power_cut_at_any_time(durable, disk):
    def work(thread):
        for number in range(10):
            add(durable, f"/{thread}/{number}")
            assert f"/{thread}/{number}" in disk.after_a_power_cut()

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(THREADS)))
    assert disk.count < THREADS * 10


def test_one_that_fails_is_undone_alone(durable, disk):
    def act(number):
        if number % 4:
            return add(durable, f"/{number}")
        with durable.transaction():
            add(durable, f"/{number}")
            raise ZeroDivisionError(number)

    with ThreadPoolExecutor(THREADS) as threads:
        futures = [threads.submit(act, number) for number in range(THREADS)]
    failed = {number for number, future in enumerate(futures) if future.exception()}
    assert failed == {0, 4, 8, 12}
    assert disk.after_a_power_cut() == {f"/{number}" for number in range(THREADS) if number % 4}


def test_a_sync_that_fails_is_an_error_of_all_who_wait_for_it(durable, other, disk):
    """A later sync would succeed without writing what was lost, so the store connects again before the next change."""
    connections = durable.connections
    disk.gate.clear()
    disk.error = errno.EIO
    with ThreadPoolExecutor(3) as threads:
        answers = [threads.submit(add, durable, f"/{number}") for number in range(3)]
        wait_until(lambda: len(shards_in(other)) == 3)
        disk.gate.set()
    for answer in answers:
        with pytest.raises(StateError, match="the disk did not confirm a change: Input/output error"):
            answer.result()
    disk.error = None
    assert add(durable, "/after") == 4
    assert durable.connections == connections + 1
    assert disk.after_a_power_cut() >= {"/after"}


def test_who_must_not_wait_waits_for_the_disk_later(durable, disk):
    disk.gate.clear()
    number = without_waiting(add, durable, "/a")
    wait_for_disk = durable.pending_sync()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait_for_disk)
        assert not wait([waiting], 0.05).done
        disk.gate.set()
        waiting.result()
    assert (number, disk.count) == (1, 1)
    assert disk.after_a_power_cut() == {"/a"}
    wait_for_disk()
    assert disk.count == 1


def test_a_change_outlives_its_process_at_once(durable, path):
    """Only a power cut may take what is not durable yet. The text of the killed one is given to its successor."""
    table = OpenTable()
    opened = table.open()
    opens = Opens(durable, table, os.getpid())

    def step(connection):
        connection.execute("INSERT INTO shard (path, identity, nth) VALUES (x'61', 'x', 1)")
        return b"one"

    def killed():
        mine = Opens(StateStore(path, fsync=True), table, os.getppid())
        mine.text(mine.open(), lambda connection: b"before")
        log_sync.os.fdatasync = lambda descriptor: os.kill(os.getpid(), 9)
        mine.text(opened, step)

    process = forking.Process(target=killed)
    process.start()
    process.join()
    assert process.exitcode == -9
    assert opens.text(opened, lambda connection: b"two") == b"one"
    assert shards_in(durable) == {"a"}


def test_without_fsync_nobody_waits_for_the_disk(store, disk):
    add(store, "/a")
    assert (disk.count, store.pending_sync()) == (0, None)
