"""Passes that `SampleSet.shuffle` made, over the data beside this file, and what of them is kept in `sample_sets.json`.

Made with touchfs as of 2244a03: python tests/data/version_0.1/sample_sets.py
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from touchfs import SampleSet
from touchfs.node import collect_state_dict, get_graph_origin, merge_states

HERE = Path(__file__).resolve().parent
TAKEN, THEN = 5, 8


def has_text(sample: Any) -> bool:
    return "txt" in sample


def key_of(item: Any) -> str:
    return str(item.id if hasattr(item, "id") else item.key)


def as_it_is(item: Any) -> Any:
    return item


def sample_sets(dataset: Path, shar: Path) -> dict[str, Callable[..., SampleSet]]:
    """Each by rank and world size."""

    def shuffled(seed: int = 7, rank: int = 0, world_size: int = 1) -> SampleSet:
        return SampleSet.from_file(dataset, indexed=True).shuffle(seed, rank=rank, world_size=world_size)

    def cuts(rank: int = 0, world_size: int = 1) -> SampleSet:
        return SampleSet.from_shar(in_dir=shar, indexed=True).shuffle(7, rank=rank, world_size=world_size)

    return {
        "shuffled": lambda **ranks: shuffled(**ranks),
        "shuffled twice": lambda **ranks: shuffled(3).shuffle(7, **ranks),
        "filtered and mapped": lambda **ranks: shuffled(**ranks).filter(has_text).map(as_it_is),
        "mapped before": lambda **ranks: (
            SampleSet.from_file(dataset, indexed=True).map(as_it_is).shuffle(seed=7, **ranks)
        ),
        "repeated": lambda **ranks: shuffled(**ranks).repeat(3),
        "muxed": lambda **ranks: shuffled(**ranks).mux(shuffled(8, **ranks), weights=[1, 3], seed=2),
        "chained": lambda **ranks: shuffled(**ranks).chain(shuffled(8, **ranks)),
        "a buffer of it": lambda **ranks: shuffled(**ranks).shuffle(3, buffer_size=4),
        "cuts": lambda **ranks: cuts(**ranks),
        "cuts repeated": lambda **ranks: cuts(**ranks).repeat(),
    }


def main() -> None:
    place = Path(tempfile.mkdtemp())
    os.environ["XDG_CACHE_HOME"] = str(place / "cache")
    for name in ("dataset", "shar"):
        shutil.copytree(HERE / name, place / name)
    lines = []
    for name, make in sample_sets(place / "dataset", place / "shar").items():
        kept = {
            "alone": alone(make(), 0),
            "in epoch 2": alone(make(), 2),
            "a rank": alone(make(rank=1, world_size=2), 0),
        }
        if name != "a buffer of it":
            kept["merged"] = merged(make)
        lines.append(f"{json.dumps(name)}: {json.dumps(kept)}")
    (HERE / "sample_sets.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    shutil.rmtree(place)


def alone(samples: SampleSet, epoch: int) -> dict[str, Any]:
    """A state, the keys and tokens of what came before it, and the keys of what comes then."""
    for _ in range(epoch):
        for _ in islice(samples, 100):
            pass
    items = iter(samples)
    taken = [(key_of(item), get_graph_origin(item)) for item in islice(items, TAKEN)]
    state = json.loads(json.dumps(collect_state_dict(samples.data)))
    return {"taken": taken, "state": state, "then": [key_of(item) for item in islice(items, THEN)]}


def merged(make: Callable[..., SampleSet]) -> dict[str, Any]:
    """A state of two ranks, and the keys that are left, sorted, as far as an epoch goes."""
    states, taken = [], []
    for rank in range(2):
        samples = make(rank=rank, world_size=2)
        taken += [key_of(item) for item in islice(samples, 2)]
        states.append(collect_state_dict(samples.data))
    state = merge_states(states)
    samples = make()
    samples.load_state_dict(state)
    return {"taken": taken, "state": state, "then": [key_of(item) for item in islice(samples, THEN)]}


if __name__ == "__main__":
    main()
