"""Sets of `touchfs.open` that are added: the samples of several datasets in one."""

import json
import pickle
from itertools import islice
from pathlib import Path

import pytest

import touchfs
from touchfs.core.errors import UsageError
from touchfs.node import share_of
from touchfs.open_dataset import OpenDataset
from touchfs.write import TarWriter

COUNTS = {"a": 7, "b": 4}


def write(source: Path, name: str) -> OpenDataset:
    """Samples `NAME0`, …, each with a text, in two tars."""
    source.mkdir()
    for part in range(2):
        with TarWriter(source / f"{name}{part}.tar") as tar:
            for number in range(part, COUNTS[name], 2):
                values = {"n": number, name: True}
                tar.add(f"{name}{number}", {"txt": b"%d" % number, "json": json.dumps(values).encode()})
    return touchfs.open(source)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    place = tmp_path_factory.mktemp("sets")
    return [write(place / name, name) for name in COUNTS]


def keys(samples) -> list[str]:
    return [sample.key for sample in samples]


def test_one_comes_after_the_other(sets):
    a, b = sets
    both = a + b
    assert keys(both) == keys(a) + keys(b) == [*both.keys()] == [both[i].key for i in range(len(both))]
    assert keys(both + a) == keys(both) + keys(a)
    assert both[-1].key == keys(b)[-1]
    assert both["b2"].text == "2"
    assert (both.find("b2"), "b9" in both) == (len(a) + b.find("b2"), False)
    with pytest.raises(IndexError):
        both[len(both)]


def test_they_are_chosen_filtered_and_shuffled_like_one(sets):
    both = sets[0] + sets[1]
    assert keys(both[::-2]) == keys(both)[::-2]
    assert keys(both[::-1].where("n >= 3")) == [key for key in keys(both)[::-1] if int(key[1:]) >= 3]
    assert both[::-1].where("n >= 3").find("a3") == keys(both[::-1].where("n >= 3")).index("a3")
    assert keys(both.where("n >= 3")) == keys(sets[0].where("n >= 3")) + keys(sets[1].where("n >= 3"))
    shuffled = both.where("n > 0").shuffle(5)
    assert sorted(keys(shuffled)) == sorted(key for key in keys(both) if key[1:] != "0")
    assert both.shuffle(1).map(lambda sample: sample.key).batch(4)[0] == [*both.shuffle(1).keys()][:4]
    assert both.shuffle(2).read("txt", range(11)) == [sample["txt"] for sample in both.shuffle(2)]
    assert keys(pickle.loads(pickle.dumps(both[1:])).shuffle(3)) == keys(both[1:].shuffle(3))
    parts = [key for rank in range(3) for key in keys(share_of(both.data, rank, 3))]
    assert sorted(parts) == sorted(keys(both))


def test_a_state_is_of_the_same_sets_in_the_same_order(sets):
    a, b = sets
    whole = keys((a + b).shuffle(5))
    first, again = (a + b).shuffle(5), (a + b).shuffle(5)
    taken = keys(islice(first, 4))
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert taken + keys(again) == whole
    for other in (b + a, (a + b)[::-1], a + b.select([*range(len(b))])):
        with pytest.raises(UsageError, match="state was saved with"):
            other.shuffle(5).load_state_dict(first.state_dict())


def test_what_cannot_be_added(sets):
    a, b = sets
    with pytest.raises(TypeError, match=r"\(a \+ b\)\.shuffle"):
        a.shuffle(1) + b
    with pytest.raises(TypeError, match=r"\(a \+ b\)\.map"):
        a.map(len) + b
    assert [*(a.map(len) + b.map(len))] == [2] * 11
    with pytest.raises(TypeError):
        a + 1
    with pytest.raises(TypeError, match="of one dataset"):
        (a + b).info()
    with pytest.raises(UsageError, match=r"/b: where: no sample has the field a\b"):
        (a + b).where("a == true")


def test_what_they_say_of_themselves(sets):
    a, b = sets
    assert repr(a + b) == "Dataset(11 samples, 4 shards, files: json txt, fields: n a b)"
    assert (a + b).extensions == ["json", "txt"]
    frame = (a + b)[5:9].to_pandas()
    assert [frame["key"].tolist(), frame["n"].tolist()] == [keys(a + b)[5:9], [3, 5, 0, 2]]
