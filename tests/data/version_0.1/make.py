"""Made what is in this directory, with touchfs as of 2244a03: python tests/data/version_0.1/make.py

It is kept to say what the files hold. Run with a later version, it would make that version's.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import wave
from itertools import islice
from pathlib import Path
from typing import Any

from graphs import LOADERS, SPECS, graphs, key_of, loader
from touchfs.state.iterators import Iterators
from touchfs.state.place import state_path
from touchfs.state.store import StateStore

from touchfs.indexing import open_dataset
from touchfs.node import collect_state_dict

HERE = Path(__file__).resolve().parent
TOUCHFS = Path(sys.executable).with_name("touchfs")
# Indexes hold absolute paths.
PLACE = Path("/tmp/version_0.1")
TAKEN, THEN = 5, 8


def main() -> None:
    for name in ("dataset", "shar", "cache", "in_place_index", "state"):
        shutil.rmtree(HERE / name, ignore_errors=True)
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    os.environ["XDG_CACHE_HOME"] = str(PLACE / "first")
    make_dataset(PLACE)
    shutil.copytree(PLACE / "dataset", HERE / "dataset")
    shutil.copytree(PLACE / "shar", HERE / "shar")
    os.environ["XDG_CACHE_HOME"] = str(PLACE / "cache")
    run("index", PLACE / "dataset")
    shutil.copytree(PLACE / "cache", HERE / "cache")
    shutil.copytree(PLACE / "dataset", PLACE / "copy")
    run("index", "--in-place", PLACE / "copy")
    shutil.copytree(PLACE / "copy" / ".touchfs-index", HERE / "in_place_index")
    os.environ["XDG_CACHE_HOME"] = str(PLACE / "second")
    states = {name: one(make) for name, make in graphs(PLACE / "dataset", PLACE / "shar").items()}
    save("states.json", states)
    save("loaders.json", loaders())
    save("iterators.json", iterators())
    shutil.rmtree(PLACE)


def run(*arguments: Any) -> None:
    subprocess.run([TOUCHFS, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def save(name: str, value: Any) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()]
    (HERE / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def make_dataset(place: Path) -> None:
    """A TouchNet shard with segments, a tar and JSON lines; and a Lhotse Shar."""
    wav = place / "wav"
    wav.mkdir()
    lines = []
    for i in range(6):
        with wave.open(str(wav / f"{i}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(bytes((7 * i + j) % 256 for j in range(800)))
        segments = [{"start": j / 100, "end": (j + 1) / 100, "txt": f"words {i} {j}"} for j in range(i % 3)]
        told = {"key": f"talk{i}", "wav": f"wav/{i}.wav", "txt": f"talk {i}", "info": {"segments": segments}}
        lines.append(json.dumps(told))
    (place / "talks.jsonl").write_text("\n".join(lines) + "\n")
    run("pack", "touch", place / "talks.jsonl", place / "packed", "--audio-resample", "8000")
    run("convert", place / "packed", place / "shar", "--to", "shar")
    shutil.copytree(place / "packed" / "000000000", place / "dataset" / "000000000")
    (place / "dataset" / "lines.jsonl").write_text("".join(f'{{"id": "line{i}", "value": {i}}}\n' for i in range(7)))
    with tarfile.open(place / "dataset" / "words.tar", "w") as tar:
        for i in range(5):
            for suffix, content in (("txt", b"word %d" % i), ("json", b'{"n": %d}' % i)):
                member = tarfile.TarInfo(f"words/word{i}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


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
    kept["item token"] = json.loads(named.item_token("samples", "lines", 3, 0))
    store.plan_number("max=30,gap=1")
    store.close()
    (HERE / "state").mkdir()
    shutil.move(path, HERE / "state" / "store.sqlite")
    return kept


if __name__ == "__main__":
    main()
