"""States, tokens and a state store that earlier versions wrote are read (tests/data/kept)."""

import json
import shutil
import sys
from itertools import islice
from pathlib import Path

import pytest

KEPT = Path(__file__).parent.parent / "data" / "kept"
sys.path.insert(0, str(KEPT))

from graphs import LOADERS, SPECS, graphs, key_of, loader  # noqa: E402

from touchfs.indexing import open_dataset  # noqa: E402
from touchfs.iterators.iterators import Iterators  # noqa: E402
from touchfs.node import restore_state_dict  # noqa: E402
from touchfs.store.place import state_path  # noqa: E402
from touchfs.store.store import StateStore  # noqa: E402

STATES, LOADER_STATES, ITERATORS = (
    json.loads((KEPT / f"{name}.json").read_text()) for name in ("states", "loaders", "iterators")
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The data, as somebody would copy them."""
    place = tmp_path_factory.mktemp("kept")
    for name in ("dataset", "shar"):
        shutil.copytree(KEPT / name, place / name)
    return place


@pytest.fixture(scope="module")
def made(place):
    return graphs(place / "dataset", place / "shar")


@pytest.mark.parametrize("name", STATES)
def test_a_graph_goes_on_from_its_states(made, name):
    for kept in STATES[name]:
        node = made[name]()
        restore_state_dict(node, kept["state"])
        items = [item if isinstance(item, str) else key_of(item) for item in islice(iter(node), len(kept["then"]))]
        assert items == kept["then"]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_goes_on_from_its_state(made, name):
    kept = LOADER_STATES[name]
    restored = loader(name, made["leaf, shuffled"]())
    restored.load_state_dict(kept["state"])
    assert list(restored) == kept["then"]


@pytest.fixture
def iterators(place, tmp_path):
    """Those of the store."""
    path = state_path(str(place / "dataset"), ".sqlite", str(tmp_path))
    shutil.copyfile(KEPT / "state" / "store.sqlite", path)
    store = StateStore(path)
    yield Iterators(store, open_dataset(str(place / "dataset")))
    store.close()


def test_a_store_keeps_its_iterators_and_their_positions(iterators):
    assert sorted(iterators.names()) == sorted(SPECS)
    for name in SPECS:
        assert iterators.read(iterators.find(name), "next") == ITERATORS[name]["then"][0]
    segments = iterators.find("segments")
    iterators.write(segments, "batch", 9)
    assert json.loads(iterators.read(segments, "spec"))["select"] == "segments"


@pytest.mark.parametrize("name", SPECS)
def test_an_iterator_goes_on_from_its_token(iterators, name):
    kept = ITERATORS[name]
    number = iterators.create(f"another-{name}")
    iterators.write(number, "spec", json.loads(kept["spec"]))
    iterators.write(number, "token", kept["token"])
    assert iterators.read(number, "next") == kept["then"][0]


def test_an_iterator_goes_on_from_the_token_of_a_sample(iterators):
    number = iterators.find("plain")
    iterators.write(number, "token", ITERATORS["item token"])
    assert iterators.read(number, "next") == "shards/lines/line3.json\n"
