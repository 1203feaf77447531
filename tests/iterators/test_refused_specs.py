"""After a spec that was refused, nobody gets samples that he has not asked for."""

import json
import os

import iterator_data
import pytest

from touchfs.core.errors import UsageError
from touchfs.indexing import open_dataset
from touchfs.iterators.iterators import Iterators
from touchfs.iterators.open_files import OpenFiles
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.writes import Piece

REFUSED = [{"shufle": 1}, {"where": "no_such_field == 1"}, {"select": "samples/nowhere"}, {"batch": 0}, 7]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "shards"
    iterator_data.make_shards(path)
    return open_dataset(os.fspath(path), in_place=True)


@pytest.fixture
def train(iterators):
    return iterators.create("train")


@pytest.mark.parametrize("spec", REFUSED, ids=json.dumps)
def test_an_iterator_whose_spec_was_refused_does_not_step(iterators, train, spec):
    with pytest.raises(UsageError) as refused:
        iterators.write(train, "spec", spec)
    for file in ("next", "next", "peek", "token"):
        with pytest.raises(UsageError, match="its spec was refused, write a valid one: ") as caught:
            iterators.read(train, file)
        assert str(refused.value).removeprefix("spec: ") in str(caught.value)
        assert str(refused.value).removeprefix("spec: ") in iterators.read(train, "error")
    iterators.write(train, "batch", 2)
    with pytest.raises(UsageError, match="its spec was refused"):
        iterators.read(train, "next")
    assert [iterators.read(train, file) for file in ("position", "epoch", "batch")] == ["0\n", "0\n", "2\n"]
    iterators.write(train, "spec", {"shuffle": 1})
    assert iterators.read(train, "next")
    assert iterators.read(train, "error") == ""


def test_it_is_so_in_every_process_and_for_what_has_stepped_before(iterators, train, store, dataset):
    other = Iterators(store, dataset)
    assert iterators.read(train, "next") and other.read(train, "next")
    iterators.write(train, "batch", 2)
    with pytest.raises(UsageError):
        other.write(train, "spec", {"shufle": 1})
    for each in (iterators, other, Iterators(store, dataset)):
        with pytest.raises(UsageError, match="there is no 'shufle'"):
            each.read(train, "next")


def test_text_that_is_no_json_or_incomplete(iterators, train, store):
    files = OpenFiles(iterators, Opens(store, OpenTable(), os.getpid()))
    with pytest.raises(UsageError):
        files.open(train, "spec").write(Piece(0, b"shuffle=1"))
    with pytest.raises(UsageError, match="not JSON"):
        files.open(train, "next").read(0, 100)
    iterators.write(train, "spec", {})
    assert iterators.read(train, "next")
    other = iterators.create("other")
    written = files.open(other, "spec")
    written.write(Piece(0, b'{"shuffle": 1'))
    written.release()
    with pytest.raises(UsageError, match="incomplete"):
        iterators.read(other, "next")


def test_without_a_spec_it_steps_and_a_valid_one_stays(iterators, train):
    first = iterators.read(train, "next")
    assert first
    assert json.loads(iterators.read(train, "spec"))["batch"] == 1
    iterators.write(train, "spec", {"batch": 2})
    for spec in REFUSED:
        with pytest.raises(UsageError):
            iterators.write(train, "spec", spec)
    assert len(iterators.read(train, "next").splitlines()) == 2
