"""Made what is in this directory, with touchfs as of 4fdc81d: python tests/data/kept/make.py

It is kept to say what the files hold. Run with a later version, it would make that version's.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from graphs import LOADERS, SPECS, graphs, key_of, loader

from touchfs.indexing import open_dataset
from touchfs.iterators.item_tokens import ItemTokens
from touchfs.iterators.iterators import Iterators
from touchfs.node import collect_state_dict
from touchfs.store.place import state_path
from touchfs.store.store import StateStore

HERE = Path(__file__).resolve().parent
PLACE = Path(tempfile.mkdtemp())
TAKEN, THEN = 5, 8


def main() -> None:
    shutil.rmtree(HERE / "state")
    for name in ("dataset", "shar"):
        shutil.copytree(HERE / name, PLACE / name)
    os.environ["XDG_CACHE_HOME"] = str(PLACE / "cache")
    states = {name: one(make) for name, make in graphs(PLACE / "dataset", PLACE / "shar").items()}
    save("states.json", states)
    save("loaders.json", loaders())
    save("iterators.json", iterators())
    shutil.rmtree(PLACE)


def save(name: str, value: Any) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()]
    (HERE / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def one(make: Any) -> Any:
    """A state in the midst of epoch 0 and one in epoch 2, and the keys of what comes behind each."""
    node = make()
    kept = []
    for epoch in (0, 1, 2):
        items = iter(node)
        taken = [key(item) for item in islice(items, TAKEN if epoch == 0 else 3)]
        if epoch != 1:
            state = json.loads(json.dumps(collect_state_dict(node)))
            then = [key(item) for item in islice(items, THEN)]
            kept.append({"taken": taken, "state": state, "then": then})
        for _ in islice(items, 100):
            pass
    return kept


def key(item: Any) -> str:
    return item if isinstance(item, str) else key_of(item)


def loaders() -> Any:
    """States of loaders of PyTorch."""
    make = graphs(PLACE / "dataset", PLACE / "shar")["leaf, shuffled"]
    kept = {}
    for name in LOADERS:
        made = loader(name, make())
        items = iter(made)
        taken = list(islice(items, 4))
        kept[name] = {"taken": taken, "state": made.state_dict(), "then": list(items)}
    return kept


def iterators() -> Any:
    """A store with an iterator for each spec, and for each its token, an item token, and what comes then."""
    path = state_path(str(PLACE / "dataset"), ".sqlite", str(PLACE / "state"))
    dataset = open_dataset(str(PLACE / "dataset"))
    store = StateStore(path)
    named = Iterators(store, dataset)
    kept = {}
    for name, spec in SPECS.items():
        number = named.create(name)
        named.write(number, "spec", spec)
        taken = [named.read(number, "next") for _ in range(3)]
        token = named.read(number, "token")
        then = [named.read(number, "peek")]
        kept[name] = {"spec": named.read(number, "spec"), "taken": taken, "token": json.loads(token), "then": then}
    kept["item token"] = json.loads(ItemTokens(dataset).token("samples", "lines", 3, 0))
    store.close()
    (HERE / "state").mkdir()
    shutil.move(path, HERE / "state" / "store.sqlite")
    return kept


if __name__ == "__main__":
    main()
