"""Opens of control files as the workers of a mount share them, without a mount."""

import os
from contextlib import ExitStack, closing

import pytest
from touchfs_mount.control.control_files import ControlFiles, IteratorBackend
from touchfs_mount.control.inodes import file_inode

from touchfs.errors import WouldWaitError
from touchfs.indexing import open_dataset
from touchfs.iterators.iterators import Iterators
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.store import StateStore

COUNT = 20_000
KEYS = [f"sample {number}" for number in range(COUNT)]


@pytest.fixture
def workers(tmp_path):
    """Three, at one store."""
    source, path = tmp_path / "lines.jsonl", os.fspath(tmp_path / "state" / "store.sqlite")
    source.write_text("".join(f'{{"id": "{key}"}}\n' for key in KEYS))
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(StateStore(path))) for _ in range(3)]
        dataset, table = open_dataset(os.fspath(source), in_place=True), OpenTable()
        yield [
            ControlFiles(
                table,
                IteratorBackend(Iterators(store, dataset), Opens(store, table, os.getpid())),
                lambda file: file.encode() + b" text",
            )
            for store in stores
        ]


@pytest.fixture
def iterator(workers):
    made = workers[0].backend.iterators.create("train")
    workers[0].backend.iterators.write(made, "spec", {"output": "key"})
    return made


def whole(file, piece=1 << 20):
    """As a worker reads it: without waiting, if that can be."""
    text = b""
    while data := file.read_nowait(len(text), piece) or file.read(len(text), piece):
        text += data
    return text.decode()


def test_what_one_worker_opens_others_read_and_release(workers, iterator):
    inode = file_inode(iterator, "next")
    for number in range(20):
        opener, reader, other = (workers[(number + place) % 3] for place in range(3))
        handle = opener.open(inode).handle
        assert whole(reader.opened(handle)) == whole(other.opened(handle)) == KEYS[number] + "\n"
        other.opened(handle).release()
        assert whole(opener.opened(handle)) == ""
    assert workers[0].backend.iterators.read(iterator, "position") == "20\n"


@pytest.mark.parametrize("ahead", [False, True])
def test_a_read_that_comes_after_the_release_makes_no_step(workers, iterator, ahead):
    worker = workers[0]
    whole(worker.open(file_inode(iterator, "next")))
    for releaser in workers:
        file = worker.open(file_inode(iterator, "next"))
        worker.expect_read(file)
        if ahead:
            worker.precompute()
        if releaser is worker:
            file.release()
        else:
            worker.rollback()  # it has slept
            releaser.opened(file.handle).release()
        for reader in workers:
            assert whole(reader.opened(file.handle)) == ""
    assert worker.backend.iterators.read(iterator, "position") == "1\n"


def test_an_expected_text_is_precomputed_and_kept_until_the_worker_sleeps(workers, iterator):
    worker, other = workers[:2]
    wanted = iter(KEYS)
    for turn in range(6):
        file = worker.open(file_inode(iterator, "next"))
        worker.expect_read(file)
        worker.precompute()
        if turn:  # at the first there was no graph yet
            assert other.backend.iterators.read(iterator, "position") == f"{turn + turn // 2}\n"
            with pytest.raises(WouldWaitError):
                other.text(other.open(file_inode(iterator, "next")).opened, wait=False)
        if turn % 2:
            worker.rollback()
            assert other.backend.iterators.read(iterator, "next") == next(wanted) + "\n"
        assert whole(file) == next(wanted) + "\n"
        worker.precompute()
        file.release()


def test_long_texts_read_in_turn(workers, iterator):
    worker = workers[0]
    worker.backend.iterators.write(iterator, "spec", {"output": "key", "batch": COUNT // 10, "repeat": True})
    wanted = [
        "".join(f"{key}\n" for key in KEYS[first : first + COUNT // 10]) for first in range(0, COUNT, COUNT // 10)
    ]
    files = [worker.open(file_inode(iterator, "next")) for _ in range(10)]
    texts = [b""] * 10
    for _ in range(6):
        for number, file in enumerate(files):
            texts[number] += file.read(len(texts[number]), 5000)
    assert [text.decode() for text in texts] == wanted
    for file in files:
        file.release()
        assert file.read(0, 10) == b""
    with worker.backend.opens.store.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM open WHERE text IS NOT NULL").fetchone() == (0,)
