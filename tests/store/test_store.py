import os
import random
import re
import signal
import sqlite3
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from command import TOUCHFS

from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import StateError, WouldWaitError
from touchfs.store.connection import file_system
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.patience import Patience, with_patience, without_waiting
from touchfs.store.store import StateStore

forking = get_context("fork")


class Started:
    """A forked process that does `work(begun, say)`: `begun()` waits for `go`, and `say` tells us something.

    None of our connections to a store may be open when it is forked.
    """

    def __init__(self, work):
        self._told, telling = forking.Pipe(duplex=False)
        going, self._go = forking.Pipe(duplex=False)
        self.process = forking.Process(target=work, args=(going.recv, telling.send))
        self.process.start()
        telling.close()
        going.close()

    def line(self):
        return self._told.recv()

    def lines(self):
        """All that it said until it ended. What it was saying when it was killed is none."""
        with suppress(EOFError, OSError):
            while True:
                yield self._told.recv()

    def go(self):
        with suppress(BrokenPipeError):
            self._go.send(None)

    def end(self):
        self.go()
        self.process.join(60)
        return self.process.exitcode


@pytest.fixture
def start():
    """Starts processes, which end before the test does."""
    started = []

    def begin(work):
        started.append(Started(work))
        return started[-1]

    yield begin
    for each in started:
        each.process.kill()
        each.process.join()


def read_one(store):
    """Have the row of an open in the store."""
    opens = Opens(store, OpenTable(), os.getpid())
    opens.text(opens.open(), lambda connection: b"ours")


def texts(store):
    with store.transaction(write=False) as connection:
        return {bytes(text) for (text,) in connection.execute("SELECT text FROM open")}


class TestShardIds:
    def test_one_for_each_shard_whatever_the_order(self, store, path):
        shards = [(f"/data/{i}", "x") for i in range(100)]
        ids = store.shard_ids(shards)
        assert len(set(ids)) == 100 and min(ids) > 0
        store.close()
        again = StateStore(path)
        assert again.shard_ids(shards[::-1]) == ids[::-1]
        again.close()

    def test_a_changed_shard_gets_a_new_one_and_the_old_one_its_own_when_it_returns(self, store):
        (first,) = store.shard_ids([("/data/a", "before")])
        (second,) = store.shard_ids([("/data/a", "after")])
        (third,) = store.shard_ids([("/data/b", "before")])
        assert len({first, second, third}) == 3
        assert store.shard_ids([("/data/a", "before"), ("/data/a", "after")]) == [first, second]

    def test_a_shard_that_is_listed_twice_has_two(self, store):
        (once,) = store.shard_ids([("/data/a", "x")])
        twice = store.shard_ids([("/data/a", "x"), ("/data/b", "x"), ("/data/a", "x")])
        assert twice[0] == once and len(set(twice)) == 3
        assert store.shard_ids([("/data/a", "x")] * 3)[:2] == [once, twice[2]]

    def test_a_path_may_be_any_bytes(self, store):
        paths = ["/data/\udcff", "/data/é\n", "/data/%FF", "/data/é\n\udcff"]
        ids = store.shard_ids([(path, "x") for path in paths])
        assert len(set(ids)) == 4
        assert store.shard_ids([(path, "x") for path in paths]) == ids

    def test_processes_that_begin_at_once_agree(self, start, path):
        def work(begun, say):
            shards = [(f"/data/{i}", "x") for i in range(200)]
            random.shuffle(shards)
            begun()
            say(sorted(zip(shards, StateStore(path).shard_ids(shards), strict=True)))

        processes = [start(work) for _ in range(4)]
        for process in processes:
            process.go()
        first, *others = [process.line() for process in processes]
        assert [process.end() for process in processes] == [0] * 4
        assert len(first) == 200
        assert others == [first] * 3

    @pytest.mark.parametrize(
        "kills", [6, pytest.param(20, marks=pytest.mark.variant), pytest.param(100, marks=pytest.mark.soak)]
    )
    def test_none_is_given_again_after_kills_at_random_moments(self, start, path, kills):
        def work(begun, say):
            dice, store = random.Random(os.getpid()), StateStore(path)
            for turn in range(10**6):
                shards = [(f"/data/{dice.randrange(300)}", f"{turn // 10}") for _ in range(dice.randrange(1, 20))]
                for shard, number in zip(shards, store.shard_ids(shards), strict=True):
                    say((shard, shards.count(shard), number))

        given = {}
        dice = random.Random(1)
        for _ in range(kills):
            started = start(work)
            begun = [started.line() for _ in range(20)]
            time.sleep(dice.random() * 0.04)
            started.process.kill()
            for shard, count, number in [*begun, *started.lines()]:
                if count == 1:
                    assert given.setdefault(shard, number) == number
            assert started.end() == -signal.SIGKILL
        assert len(set(given.values())) == len(given) > 100
        with closing(sqlite3.connect(path)) as connection, connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        store = StateStore(path)
        (new,) = store.shard_ids([("/data/new", "x")])
        assert new > max(given.values())
        store.close()

    def test_one_that_was_deleted_is_not_given_again(self, store, path):
        ids = store.shard_ids([(f"/data/{i}", "x") for i in range(3)])
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM shard")
        assert store.shard_ids([("/data/9", "x")])[0] > max(ids)


class TestMounts:
    def test_what_ended_processes_left_is_deleted_and_the_living_stay(self, start, path):
        def work(name):
            def open_one(begun, say):
                opens = Opens(StateStore(path), OpenTable(), os.getpid())
                opens.text(opens.open(), lambda connection: name)
                say("ready")
                begun()

            return open_one

        living, killed, ended = (start(work(name)) for name in (b"living", b"killed", b"ended"))
        for process in (living, killed, ended):
            assert process.line() == "ready"
        killed.process.kill()
        assert (killed.end(), ended.end()) == (-signal.SIGKILL, 0)
        with closing(StateStore(path)) as store:
            read_one(store)
            store.add_mount(os.getpid())
            assert texts(store) == {b"living", b"ours"}
        assert living.end() == 0

    def test_a_process_that_has_the_number_of_an_ended_one_is_another(self, store, path):
        read_one(store)
        with (
            closing(sqlite3.connect(path)) as connection,
            connection,
        ):  # as it was left by an earlier process with our number
            connection.execute("UPDATE mount SET started = '1'")
        store.add_mount(os.getpid())
        assert texts(store) == set()

    @pytest.mark.parametrize(("column", "left"), [("boot", set()), ("pids", {b"ours"})])
    def test_of_another_container_is_deleted_after_a_reboot_only(self, store, path, column, left):
        read_one(store)
        with (
            closing(sqlite3.connect(path)) as connection,
            connection,
        ):  # as a mount of another pid namespace, or before a reboot, is kept
            connection.execute(f"UPDATE mount SET pid = 2147483647, started = '1', {column} = 'another'")
        store.add_mount(os.getpid())
        assert texts(store) == left

    def test_one_that_is_over_leaves_nothing(self, store):
        read_one(store)
        store.remove_mount(os.getpid())
        assert texts(store) == set()
        with store.transaction() as connection:
            assert connection.execute("SELECT count(*) FROM mount").fetchone() == (0,)

    def test_is_known_again(self, store, path):
        first = store.add_mount(os.getpid())
        with closing(StateStore(path)) as other:
            assert other.add_mount(os.getpid()) == store.add_mount(os.getpid()) == first


class TestLater:
    """As a worker has it: connected to at first use, and never another store than the one mounted."""

    @pytest.fixture
    def later(self, store, path):
        with closing(StateStore(path, later=True, identity=store.identity)) as later:
            yield later

    @pytest.fixture(autouse=True)
    def _at_once(self, monkeypatch):
        """Looked at each time, not once a second."""
        for name in ("_LOOK_SECONDS", "_RECONNECT_SECONDS"):
            monkeypatch.setattr(f"touchfs.store.database.{name}", 0.0)

    def test_nothing_is_made_where_there_was_none(self, tmp_path):
        later = StateStore(os.fspath(tmp_path / "none" / "store.sqlite"), later=True, identity=b"some")
        with pytest.raises(StateError, match="is gone: put it back, or mount again"):
            later.add_mount(1)
        assert not (tmp_path / "none").exists()

    @pytest.mark.parametrize("what", ["directory", "file"])
    def test_one_that_is_gone_is_used_again_when_it_is_back(self, later, store, path, what):
        before = later.shard_ids([("/a", "x")])
        store.close()
        moved = Path(path).parent if what == "directory" else Path(path)
        moved.rename(f"{moved}.away")
        for _ in range(2):
            with pytest.raises(StateError, match="is gone"):
                later.shard_ids([("/b", "x")])
        Path(f"{moved}.away").rename(moved)
        assert later.shard_ids([("/b", "x"), ("/a", "x")])[1:] == before

    def test_another_one_in_its_place_is_neither_used_nor_changed(self, later, store, path):
        later.shard_ids([("/a", "x")])
        store.close()
        directory = Path(path).parent
        directory.rename(f"{directory}.away")
        with closing(StateStore(path)) as other:
            other.shard_ids([("/other", "x")])
            with pytest.raises(StateError, match="is not the store that was mounted"):
                later.shard_ids([("/b", "x")])
            with other.transaction() as connection:
                assert connection.execute("SELECT path FROM shard").fetchall() == [(b"/other",)]

    def test_a_damaged_one_is_used_again_when_it_is_mended(self, later, store, path):
        before = later.shard_ids([(f"/{number}", "x") for number in range(100)])
        store.close()
        later.close()
        whole = Path(path).read_bytes()
        later = StateStore(path, later=True, identity=store.identity)
        Path(path).write_bytes(b"\xa5" * len(whole))
        for _ in range(2):
            with pytest.raises(StateError, match="damaged"):
                later.shard_ids([("/1", "x")])
        Path(path).write_bytes(whole)
        assert later.shard_ids([(f"/{number}", "x") for number in range(100)]) == before
        later.close()

    def test_who_must_not_wait_does_not_connect(self, later):
        with pytest.raises(WouldWaitError):
            without_waiting(later.transaction().__enter__)


class TestWaiting:
    def test_each_gives_up_at_its_own_time(self, store, path):
        """None of them holds what the others need to find that out."""
        with closing(StateStore(path)) as other, ThreadPoolExecutor(9) as threads:
            with other.transaction():
                patient = [
                    threads.submit(with_patience, Patience(60), store.shard_ids, [("/a", "x")]) for _ in range(8)
                ]
                with pytest.raises(StateError, match="other processes have locked it"):
                    with_patience(Patience(0.2), store.shard_ids, [("/a", "x")])
                assert not any(each.done() for each in patient)
            assert [each.result() for each in patient] == [[1]] * 8

    def test_who_only_looks_waits_for_nobody(self, store, path):
        store.shard_ids([("/a", "x")])
        with closing(StateStore(path)) as other, other.transaction() as connection:
            connection.execute("DELETE FROM shard")
            looking = store.transaction(write=False)
            connection = without_waiting(looking.__enter__)
            assert connection.execute("SELECT count(*) FROM shard").fetchone() == (1,)
            looking.__exit__(None, None, None)

    def test_work_is_no_waiting(self):
        patience = Patience(0.02)
        with patience.working():
            time.sleep(0.03)
        assert patience.left > 0


def one_line(caught):
    line = str(caught.value)
    assert "\n" not in line
    return line


class TestPlaces:
    def test_the_directory_is_made(self, tmp_path):
        StateStore(os.fspath(tmp_path / "a" / "b" / "store.sqlite")).close()
        assert (tmp_path / "a" / "b" / "store.sqlite").exists()

    def test_a_path_without_a_directory_is_here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        StateStore("store.sqlite").close()
        assert (tmp_path / "store.sqlite").exists()

    # Nobody can make files in /proc, root neither.
    @pytest.mark.parametrize("path", ["/proc/touchfs/store.sqlite", "/proc/store.sqlite", "/dev/null/store.sqlite"])
    def test_one_where_nothing_can_be_made_is_refused(self, path):
        with pytest.raises(StateError) as caught:
            StateStore(path)
        assert re.match(r"/.*: cannot be used: .*; choose another --state-dir", one_line(caught))

    def test_a_store_that_cannot_be_written_is_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "store.sqlite")
            StateStore(path).close()
            os.chmod(path, 0o444)
            os.chmod(directory, 0o555)
            with unprivileged(), pytest.raises(StateError) as caught:
                StateStore(path)
            assert one_line(caught).startswith(f"{path}: cannot be used: ")
            os.chmod(directory, 0o755)

    @pytest.mark.parametrize("kept", [0, 100])
    def test_a_file_that_is_no_store_is_refused_and_left_alone(self, path, kept):
        with closing(StateStore(path)) as store:
            store.shard_ids([("/data/a", "x")])
        damaged = Path(path).read_bytes()[:kept] + b"not a database" * 1000
        Path(path).write_bytes(damaged)
        with pytest.raises(StateError) as caught:
            StateStore(path)
        assert re.search(r"damaged \(.*\): unmount what uses it, and delete it", one_line(caught))
        assert Path(path).read_bytes() == damaged

    def test_one_that_is_damaged_further_on_says_so_when_it_is_used(self, path):
        with closing(StateStore(path)) as store:
            store.shard_ids([(f"/data/{i}", "x") for i in range(1000)])
        with open(path, "r+b") as file:
            file.seek(4096)
            file.write(b"\xa5" * (os.path.getsize(path) - 4096))
        with pytest.raises(StateError, match="damaged"), closing(StateStore(path)) as store:
            store.shard_ids([(f"/data/{i}", "x") for i in range(1000)])

    @pytest.mark.parametrize("version", [4, 7])
    def test_the_store_of_another_version_is_refused_and_left_alone(self, path, version):
        StateStore(path).close()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        with pytest.raises(StateError) as caught:
            StateStore(path)
        assert one_line(caught) == f"{path}: made by another touchfs (version {version}): choose another --state-dir"
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA user_version").fetchall() == [(version,)]

    def test_one_that_was_closed_says_so(self, store):
        store.close()
        with pytest.raises(StateError, match="closed"):
            store.add_mount(1)


class TestFileSystems:
    @pytest.mark.parametrize(
        "directory", ["/", "/proc", "/proc/self", "/sys", "/dev", "/dev/shm", os.path.dirname(__file__)]
    )
    def test_the_kind_is_that_of_the_mount_that_holds_the_directory(self, directory):
        findmnt = ["findmnt", "--noheadings", "--first-only", "--output", "FSTYPE", "--target", directory]
        assert file_system(directory) == subprocess.run(findmnt, capture_output=True, text=True).stdout.strip()

    def test_one_on_the_network_is_refused(self, tmp_path):
        """A mount of touchfs is on the list too, and can be had everywhere. Its name has what mountinfo escapes."""
        (tmp_path / "shards").mkdir()
        with TouchNetWriter(tmp_path / "shards" / "0", {"audio": np.dtype("<i2")}) as writer:
            writer.add({"audio": b"ab"})
        mount_point = tmp_path / "with space,\ttab and \\"
        subprocess.run([TOUCHFS, "mount", "shards", mount_point], cwd=tmp_path, capture_output=True, check=True)
        try:
            assert file_system(os.fspath(mount_point / "shards")) == "fuse.touchfs"
            (tmp_path / "link").symlink_to(mount_point / "shards")
            for directory in (mount_point, tmp_path / "link"):
                with pytest.raises(StateError) as caught:
                    StateStore(os.fspath(directory / "store.sqlite"))
                told = f"{directory}: the state cannot be kept on fuse.touchfs: choose a local --state-dir"
                assert str(caught.value) == told.replace("\t", "\\t")
        finally:
            subprocess.run([TOUCHFS, "umount", mount_point], check=True)


@contextmanager
def unprivileged():
    """As somebody whom permissions hold back."""
    us = os.geteuid()
    os.seteuid(us or 65534)
    try:
        yield
    finally:
        os.seteuid(us)


def test_after_a_transaction_that_could_not_be_undone_the_next_is_one_of_its_own(store, path):
    store._connection.execute("BEGIN")
    store._connection.execute("INSERT INTO shard (path, identity, nth) VALUES (x'61', 'lost', 1)")
    store.shard_ids([("kept", "x")])
    with closing(StateStore(path)) as other, other.transaction() as connection:
        assert connection.execute("SELECT path FROM shard").fetchall() == [(b"kept",)]
