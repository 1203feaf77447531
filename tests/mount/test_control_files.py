"""Opens of control files as the workers of a mount share them, without a mount."""

import os
import re
from contextlib import ExitStack, closing

import pytest
from touchfs_mount.control import entries
from touchfs_mount.control.entries import ControlEntries
from touchfs_mount.control.file_handles import ControlFiles
from touchfs_mount.control.inodes import INFO, directory_inode, file_inode
from touchfs_mount.control.known_iterators import KnownIterators

from touchfs.core.errors import ChangedError
from touchfs.indexing import open_dataset
from touchfs.iterators.iterator_files import ITERATOR_FILE_WORDS, ITERATOR_FILES
from touchfs.iterators.iterators import Iterators
from touchfs.iterators.open_files import OpenFiles
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.store import StateStore
from touchfs.tree.inode import unpack

COUNT = 20_000
KEYS = [f"sample {number}" for number in range(COUNT)]


class Worker(ControlFiles):
    def __init__(self, table, store, dataset):
        self.store, self.iterators = store, Iterators(store, dataset)
        files = OpenFiles(self.iterators, Opens(store, table, os.getpid()))
        super().__init__(table, files, OwnTexts())


class OwnTexts:
    """Texts that are different in each worker."""

    def text(self, name):
        return f"{name} {id(self)}".encode()

    def write(self, name, data):
        raise PermissionError(name)


@pytest.fixture
def workers(tmp_path):
    """Three, at one store."""
    source, path = tmp_path / "lines.jsonl", os.fspath(tmp_path / "state" / "store.sqlite")
    source.write_text("".join(f'{{"id": "{key}"}}\n' for key in KEYS))
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(StateStore(path))) for _ in range(3)]
        dataset, table = open_dataset(os.fspath(source), in_place=True), OpenTable()
        yield [Worker(table, store, dataset) for store in stores]


@pytest.fixture
def iterator(workers):
    made = workers[0].iterators.create("train")
    workers[0].iterators.write(made, "spec", {"output": "key"})
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
        handle, _ = opener.open(inode)
        assert whole(reader.file(handle)) == whole(other.file(handle)) == KEYS[number] + "\n"
        other.release(handle)
        assert whole(opener.file(handle)) == ""
    assert workers[0].iterators.read(iterator, "position") == "20\n"


def test_all_workers_read_the_text_that_the_first_one_made(workers):
    handle, _ = workers[0].open(INFO)
    text = whole(workers[1].file(handle))
    assert text.startswith("info ")
    assert whole(workers[0].file(handle)) == whole(workers[2].file(handle)) == text
    workers[2].release(handle)
    assert whole(workers[0].file(handle)) == ""


def test_a_read_that_comes_after_the_release_makes_no_step(workers, iterator):
    worker = workers[0]
    whole(worker.open(file_inode(iterator, "next"))[1])
    for releaser in workers:
        handle, _ = worker.open(file_inode(iterator, "next"))
        assert releaser.release(handle) is None
        for reader in workers:
            assert whole(reader.file(handle)) == ""
    assert worker.iterators.read(iterator, "position") == "1\n"


def test_attributes_are_told_without_the_store_for_a_second(workers, iterator, monkeypatch):
    """Programs ask for them at each open; to look in the store takes a thread, and longer than a step."""
    here, there = (ControlEntries(worker.iterators, KnownIterators(), 0) for worker in workers[:2])
    inode, now = file_inode(iterator, "next"), 100.0
    monkeypatch.setattr(entries, "monotonic", lambda: now)
    assert here.entry_nowait(INFO) == here.entry(INFO)
    assert here.entry_nowait(inode) is None
    assert here.entry(inode) == here.entry_nowait(inode)
    assert there.entry_nowait(inode) is None
    now += 1
    assert here.entry_nowait(inode) is None
    here.entry(inode)
    here.remove_iterator(b"train", "0:1")
    assert here.entry_nowait(inode) is None
    with pytest.raises(ChangedError, match="the iterator was removed"):
        here.entry(inode)


def test_long_texts_read_in_turn(workers, iterator):
    worker = workers[0]
    worker.iterators.write(iterator, "spec", {"output": "key", "batch": COUNT // 10, "repeat": True})
    wanted = [
        "".join(f"{key}\n" for key in KEYS[first : first + COUNT // 10]) for first in range(0, COUNT, COUNT // 10)
    ]
    handles = [worker.open(file_inode(iterator, "next"))[0] for _ in range(10)]
    texts = [b""] * 10
    for _ in range(6):
        for number, handle in enumerate(handles):
            texts[number] += worker.file(handle).read(len(texts[number]), 5000)
    assert [text.decode() for text in texts] == wanted
    for handle in handles:
        worker.release(handle)
        assert worker.file(handle).read(0, 10) == b""
    with worker.store.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM open WHERE text IS NOT NULL").fetchone() == (0,)


def test_the_table_of_an_iterators_files_says_their_numbers_modes_and_words(workers, iterator):
    """Inode numbers and modes never change, so they are written down here."""
    shown = ControlEntries(workers[0].iterators, KnownIterators(), 0o066).entries(directory_inode(iterator), 0)
    names = ["spec", "next", "peek", "token", "position", "len", "epoch", "batch", "reset", "error"]
    assert list(ITERATOR_FILES) == [name.decode() for name, _, _ in shown] == names
    assert [unpack(entry.inode)[2] for _, entry, _ in shown] == list(range(2, 12))
    assert [oct(entry.mode & 0o777) for _, entry, _ in shown] == [
        *("0o666", "0o644", "0o444", "0o666", "0o444", "0o444", "0o444", "0o666", "0o666", "0o444")
    ]
    assert all(re.search(rf"^  (\S.* )?{name} +\S", ITERATOR_FILE_WORDS, re.MULTILINE) for name in ITERATOR_FILES)
