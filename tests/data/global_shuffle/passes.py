"""Passes with a global shuffle, over the data of tests/data/kept, and what `passes.json` holds of them.

Made with touchfs as of 0bafda7, where a shuffle was no node of its own, but a copy of a leaf or a chain of one source:
python tests/data/global_shuffle/passes.py
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from touchfs import SampleSet
from touchfs.indexing import open_dataset
from touchfs.iterators.iterators import Iterators
from touchfs.node import LazyIteratorChain, collect_state_dict, get_graph_origin, merge_states
from touchfs.store.store import StateStore

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "kept"
TAKEN, THEN = 3, 8


def key_of(item: Any) -> str:
    """The key of a sample or of its sound."""
    return str(item.id if hasattr(item, "id") else item.key)


def as_it_is(item: Any) -> Any:
    return item


def passes(dataset: Path, shar: Path) -> dict[str, Callable[..., SampleSet]]:
    """Each by rank and world size."""

    def part(name: str) -> SampleSet:
        return SampleSet.from_file(dataset / name, indexed=True)

    def talks(**order: Any) -> SampleSet:
        return SampleSet.from_file(dataset / "000000000", indexed=True, **order)

    def both() -> SampleSet:
        return part("lines.jsonl").chain(part("words.tar"))

    return {
        "a leaf": lambda **ranks: part("lines.jsonl").shuffle(7, **ranks),
        "a padded block of a leaf": lambda **ranks: part("lines.jsonl").shuffle(
            7, **ranks, partition="block", tail="pad"
        ),
        "a leaf in another order": lambda **ranks: talks(shuffle=True, seed=3).shuffle(7, **ranks),
        "a leaf, mapped": lambda **ranks: part("words.tar").shuffle(7, **ranks).map(as_it_is),
        "cuts": lambda **ranks: SampleSet.from_shar(in_dir=shar, indexed=True).shuffle(7, **ranks),
        "cuts, mapped before": lambda **ranks: (
            SampleSet.from_shar(in_dir=shar, indexed=True).map(as_it_is).shuffle(7, **ranks)
        ),
        "a mapper": lambda **ranks: part("words.tar").map(as_it_is).shuffle(7, **ranks),
        "a mapper of a shuffle": lambda **ranks: part("words.tar").shuffle(2).map(as_it_is).shuffle(7, **ranks),
        "a mapper, twice": lambda **ranks: part("words.tar").map(as_it_is).shuffle(2).shuffle(7, **ranks),
        "a chain": lambda **ranks: both().shuffle(7, **ranks),
        "a chain of shuffles": lambda **ranks: (
            part("words.tar").shuffle(1).chain(both().shuffle(2)).shuffle(7, **ranks)
        ),
        "a chain that shuffles": lambda **ranks: SampleSet(
            LazyIteratorChain(part("words.tar").shuffle(1), both(), shuffle_iters=True, seed=7, **ranks)
        ),
        "a buffer of a mapper": lambda **ranks: (
            part("words.tar").map(as_it_is).shuffle(7, **ranks).shuffle(1, buffer_size=3)
        ),
        "a mix with a shuffle": lambda **ranks: talks().shuffle(7, **ranks).mix(talks().shuffle(1), preserve_id="left"),
        "a repeated mux": lambda **ranks: (
            part("words.tar").shuffle(7, **ranks).mux(both().shuffle(8, **ranks), seed=2).repeat(2)
        ),
    }


SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shuffled": {"shuffle": 7},
    "rank": {"shuffle": 7, "rank": 1, "world_size": 3, "batch": 2},
    "where": {"where": "text exists", "shuffle": 2},
    "repeat": {"shuffle": 3, "repeat": 2, "batch": 5},
    "mux": {
        "mux": [{"select": "samples", "weight": 3, "shuffle": 2, "repeat": 2}, {"select": "segments"}],
        "shuffle": 5,
    },
}


def main() -> None:
    place = Path(tempfile.mkdtemp())
    os.environ["XDG_CACHE_HOME"] = str(place / "cache")
    for name in ("dataset", "shar"):
        shutil.copytree(DATA / name, place / name)
    kept: dict[str, Any] = {}
    for name, make in passes(place / "dataset", place / "shar").items():
        kept[name] = {
            "alone": after(make(), 0),
            "in epoch 2": after(make(), 2),
            "a rank": after(make(rank=1, world_size=2), 0),
        }
        if name != "a buffer of a mapper":
            kept[name]["merged"] = merged(make)
    (HERE / "passes.json").write_text(one_a_line(kept))
    (HERE / "specs.json").write_text(one_a_line(specs(place)))
    shutil.rmtree(place)


def one_a_line(kept: dict[str, Any]) -> str:
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in kept.items()) + "\n}\n"


def after(samples: SampleSet, epoch: int) -> dict[str, Any]:
    """A state, the keys and tokens of what came before it, and the keys of what comes then."""
    for _ in range(epoch):
        for _ in islice(samples, 100):
            pass
    items = iter(samples)
    taken = [(key_of(item), get_graph_origin(item)) for item in islice(items, TAKEN)]
    state = json.loads(json.dumps(collect_state_dict(samples.data)))
    return {"taken": taken, "state": state, "then": [key_of(item) for item in islice(items, THEN)]}


def merged(make: Callable[..., SampleSet]) -> dict[str, Any]:
    """The states of two ranks, the state that both make, and the keys that one rank reads from there."""
    states = []
    for rank in range(2):
        samples = make(rank=rank, world_size=2)
        for _ in islice(samples, 2):
            pass
        states.append(collect_state_dict(samples.data))
    state = merge_states(states)
    samples = make()
    samples.load_state_dict(state)
    return {"states": states, "state": state, "then": [key_of(item) for item in islice(samples, THEN)]}


def specs(place: Path) -> dict[str, Any]:
    """For each spec its token after two steps, the lines of these, and the line of the next."""
    kept = {}
    with closing(StateStore(str(place / "store.sqlite"))) as store:
        iterators = Iterators(store, open_dataset(str(place / "dataset")))
        for name, spec in SPECS.items():
            number = iterators.create(name)
            iterators.write(number, "spec", spec)
            taken = [iterators.read(number, "next") for _ in range(2)]
            token = json.loads(iterators.read(number, "token"))
            then = iterators.read(number, "peek")
            kept[name] = {"spec": spec, "taken": taken, "token": token, "then": then}
    return kept


if __name__ == "__main__":
    main()
