"""What both stores of iterators promise: the same tests for SQLite and for PostgreSQL."""

import json
import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from multiprocessing import get_context

import pytest
from counting import counting
from waiting import wait_until

from touchfs.core.errors import ExistsError, NotFoundError, UsageError
from touchfs.iterators.iterators import Iterators
from touchfs.iterators.open_files import OpenFiles
from touchfs.iterators.registry import Registry
from touchfs.postgres.opens import FleetOpens
from touchfs.postgres.store import PostgresStore
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.store import StateStore
from touchfs.store.writes import Piece

COUNT = 90
forking = get_context("fork")


class Kind:
    """A kind of store: makes stores at one place, and open files in them."""

    def __init__(self, stack, make, opens):
        self._stack, self._make, self.opens = stack, make, opens

    def store(self):
        return self._stack.enter_context(closing(self._make()))


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request, tmp_path):
    with ExitStack() as stack:
        if request.param == "sqlite":
            make, opens = partial(StateStore, os.fspath(tmp_path / "state" / "store.sqlite")), Opens
        else:
            place = request.getfixturevalue("server").place(tmp_path, mount=b"the mount")
            make, opens = partial(PostgresStore, place, lambda: "fingerprint"), FleetOpens
        pid = os.getpid()  # of the mount, also in processes that are forked
        yield Kind(stack, make, lambda store, table: opens(store, table, pid))


@pytest.fixture
def store(kind):
    return kind.store()


@pytest.fixture
def iterators(store, dataset):
    return Iterators(store, dataset)


def made(iterators, name="train", **spec):
    iterator = iterators.create(name)
    iterators.write(iterator, "spec", {"output": "key", **spec})
    return iterator


def test_names(store):
    registry = Registry(store)
    one, two = registry.create("one"), registry.create("zwei ü", "1:2")
    assert registry.named() == [(b"one", one), ("zwei ü".encode(), two)]
    assert registry.create("zwei ü", "1:2") == two, "a request that is sent again"
    with pytest.raises(ExistsError):
        registry.create("zwei ü", "1:3")
    registry.remove("one", "1:2")
    registry.remove("one", "1:2")
    with pytest.raises(NotFoundError):
        registry.remove("one", "1:3")
    assert registry.create("one") > two, "no number is used again"
    assert registry.find("none") is None
    assert registry.name_of(two) == "zwei ü"


def test_an_epoch_is_told_once_and_ends(iterators, dataset):
    iterator = made(iterators, shuffle=7, batch=4)
    for epoch in range(2):
        told = []
        while text := iterators.read(iterator, "next"):
            told += text.split()
        assert sorted(told) == sorted(f"n{number}" for number in range(COUNT))
        assert iterators.read(iterator, "epoch") == f"{epoch + 1}\n" or epoch == 0


def test_steps_of_many_connections_and_threads(kind, dataset):
    many = [Iterators(kind.store(), dataset) for _ in range(3)]
    iterator = made(many[0], shuffle=1)
    with ThreadPoolExecutor(6) as threads:
        texts = list(threads.map(lambda number: many[number % 3].read(iterator, "next"), range(COUNT + 1)))
    assert Counter(texts) == Counter([f"n{number}\n" for number in range(COUNT)] + [""])


def test_a_state_restores_anywhere(kind, iterators, dataset, tmp_path):
    """In the same store, and in one of the other kind."""
    iterator = made(iterators, shuffle=3, batch=7)
    for _ in range(5):
        iterators.read(iterator, "next")
    token = json.loads(iterators.read(iterator, "token"))
    following = iterators.read(iterator, "next")
    with closing(StateStore(os.fspath(tmp_path / "other" / "store.sqlite"))) as other:
        for each in (Iterators(other, dataset), iterators):
            another = made(each, "another", shuffle=3, batch=7)
            each.write(another, "token", token)
            assert each.read(another, "next") == following


def test_values(iterators):
    iterator = made(iterators)
    iterators.write(iterator, "batch", 50)
    assert iterators.read(iterator, "next").count("\n") == 50
    assert (iterators.read(iterator, "position"), iterators.read(iterator, "len")) == ("50\n", f"{COUNT}\n")
    with pytest.raises(UsageError):
        iterators.write(iterator, "spec", {"batch": 0})
    assert "batch" in iterators.read(iterator, "error")
    iterators.write(iterator, "reset", 1)
    assert (iterators.read(iterator, "position"), iterators.read(iterator, "error")) == ("0\n", "")
    with pytest.raises(UsageError):
        iterators.write(iterator, "token", {"touchfs_state": "é\0"})
    assert iterators.read(iterator, "error")


@pytest.mark.parametrize(
    ("column", "value"),
    [("base", "garbage"), ("base", "{}"), ("base", '{"touchfs_state":2}'), ("steps", -1), ("steps", 1 << 40)],
)
def test_a_damaged_position_is_told_and_a_reset_starts_it_anew(store, iterators, column, value):
    iterator = made(iterators, shuffle=3)
    first = iterators.read(iterator, "next")
    store.run(lambda connection: connection.execute(f"UPDATE iterator SET {column} = ?", (value,)))
    for file in ("next", "peek", "token"):
        with pytest.raises(UsageError, match=r"^its position is damaged: writing 1 to reset starts it again$"):
            iterators.read(iterator, file)
        assert iterators.read(iterator, "error").startswith(f"{file}: its position is damaged")
    iterators.write(iterator, "reset", 1)
    assert iterators.read(iterator, "next") == first


@pytest.mark.parametrize("damaged", ["garbage", "[]", '{"batch":0}'])
def test_a_damaged_spec_is_told_and_can_be_written_anew(store, iterators, damaged):
    iterator = made(iterators, shuffle=3)
    first = iterators.read(iterator, "next")
    store.run(lambda connection: connection.execute("UPDATE iterator SET spec = ?", (damaged,)))
    with pytest.raises(UsageError, match="its spec is damaged, write it again: "):
        iterators.read(iterator, "next")
    iterators.write(iterator, "spec", {"output": "key", "shuffle": 3})
    assert iterators.read(iterator, "next") == first


def test_an_open_is_one_step_in_every_worker(kind):
    table, make = OpenTable(), counting(kind.store())
    workers = [kind.opens(kind.store(), table) for _ in range(3)]
    ids = [workers[0].open() for _ in range(10)]
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda at: (ids[at % 10], workers[at % 3].text(ids[at % 10], make)), range(120)))
    assert len(set(answers)) == 10
    assert sorted(int(text) for _, text in set(answers)) == list(range(10))
    workers[0].release(ids[0])
    assert workers[1].text(ids[0], make) in (b"", dict(answers)[ids[0]])


def test_an_error_changes_nothing(kind, store):
    opens, make = kind.opens(store, OpenTable()), counting(store)

    def failing(connection):
        make(connection)
        raise ZeroDivisionError

    opened = opens.open()
    with pytest.raises(ZeroDivisionError):
        opens.text(opened, failing)
    assert opens.text(opened, make) == b"0"
    with pytest.raises(ZeroDivisionError):
        store.run(failing)
    assert opens.text(opens.open(), make) == b"1"


def test_a_nested_transaction_is_part_of_the_outer_one(store):
    make = counting(store)
    with pytest.raises(ZeroDivisionError), store.transaction():
        assert store.run(make) == b"0"
        with store.transaction(write=False):
            assert store.run(make) == b"1"
        raise ZeroDivisionError
    assert store.run(make) == b"0"


def test_rows_of_opens_are_few(kind, store):
    opens, make = kind.opens(store, OpenTable()), counting(store)
    for _ in range(400):
        opened = opens.open()
        opens.text(opened, make)
        opens.release(opened, at_once=False)
    with store.transaction(write=False) as connection:
        assert connection.execute("SELECT count(*) FROM open").fetchone()[0] <= 300


def test_values_in_pieces_that_are_sent_again(kind, store, iterators):
    files = OpenFiles(iterators, kind.opens(store, OpenTable()))
    iterator = made(iterators)
    opened = files.open(iterator, "spec")
    for piece in [(0, b'{"batch"', 0), (0, b'{"batch"', 1), (8, b":5}", 1), (0, b'{"batch"', 2), (8, b":5}", 2)]:
        opened.write(Piece(*piece))
    assert iterators.read(iterator, "batch") == "5\n"
    iterators.read(iterator, "next")
    opened.write(Piece(8, b":5}", 3))
    assert iterators.read(iterator, "position") == "5\n"
    opened.write(Piece(11, b'{"bat', 3))
    remaining = opened.release()
    if remaining is not None:
        remaining()
    assert "incomplete" in iterators.read(iterator, "error")
    with store.transaction(write=False) as connection:
        assert connection.execute("SELECT count(*) FROM written").fetchone() == (0,)


def test_workers_killed_at_any_instant_take_none_twice(kind, tmp_path):
    """Each successor reads the opens of the killed one, as the kernel resends its requests."""
    table = OpenTable()
    make = counting(kind.store())
    ids = [table.open() for _ in range(200)]
    told = tmp_path / "told"
    told.touch()

    def work():
        opens = kind.opens(kind.store(), table)
        with open(told, "ab", 0) as file:
            for opened in ids:
                file.write(b"%d %s\n" % (opened, opens.text(opened, make)))

    for count in (13, 47, 90, 170):
        before = told.read_bytes().count(b"\n")
        process = forking.Process(target=work)
        process.start()
        wait_until(lambda before=before, count=count: told.read_bytes().count(b"\n") >= before + count)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    opens = kind.opens(kind.store(), table)
    final = {opened: opens.text(opened, make) for opened in ids}
    assert sorted(map(int, final.values())) == list(range(200))
    answers = [line.split() for line in told.read_bytes().splitlines()]
    assert all(final[int(opened)] == text for opened, text in answers)
