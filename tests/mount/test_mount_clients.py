"""Many processes at once read, list and step: every byte, name and step of theirs is verified, and no step is lost."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from touchfs.containers.touchnet.writer import TouchNetWriter

OPERATIONS = 40
SHARDS, SAMPLES = 4, 50

# `-c CLIENT ROOT ITERATOR EXPECTED SEED`: prints its steps as JSON. It fails if anything is not as expected.
CLIENT = """
import hashlib, json, mmap, os, random, sys
root, train, expected, seed = sys.argv[1:]
with open(expected) as file:
    expected = json.load(file)
dice, steps = random.Random(int(seed)), []
def read(path):
    with open(path, "rb") as file:
        return file.read()
def read_map(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped[:]
for _ in range(OPERATIONS):
    kind = dice.choice(["read", "read", "list", "step"])
    if kind == "read":
        name = dice.choice(sorted(expected["files"]))
        data = dice.choice([read, read_map])(os.path.join(root, name))
        assert hashlib.sha256(data).hexdigest() == expected["files"][name], name
    elif kind == "list":
        name = dice.choice(sorted(expected["directories"]))
        assert sorted(os.listdir(os.path.join(root, name))) == expected["directories"][name], name
    else:
        step = read(os.path.join(train, "next")).decode().strip()
        if not step:  # an epoch ends
            continue
        steps.append(step)
        assert hashlib.sha256(read(steps[-1])).hexdigest() == expected["files"][os.path.relpath(steps[-1], root)]
print(json.dumps(steps))
""".replace("OPERATIONS", str(OPERATIONS))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory) -> tuple[Path, dict[str, dict[str, object]]]:
    """Shards of token arrays of any length, and what a mount of them must show, from what was written into them."""
    source, dice = tmp_path_factory.mktemp("clients") / "shards", np.random.default_rng(16)
    source.mkdir()
    files: dict[str, object] = {}
    directories: dict[str, object] = {"shards": [f"{shard:02d}" for shard in range(SHARDS)]}
    for shard in range(SHARDS):
        names = []
        with TouchNetWriter(source / f"{shard:02d}", {"texttoken": np.dtype("<i4")}) as writer:
            for number in range(SAMPLES):
                array = dice.integers(0, 1 << 30, dice.integers(1, 40_000), "<i4")
                writer.add({"texttoken": array.tobytes()})
                np.save(source / "expected.npy", array)
                names.append(f"{number:08d}.texttoken.npy")
                data = (source / "expected.npy").read_bytes()
                files[f"shards/{shard:02d}/{names[-1]}"] = hashlib.sha256(data).hexdigest()
        directories[f"shards/{shard:02d}"] = names
    (source / "expected.npy").unlink()
    return source, {"files": files, "directories": directories}


@pytest.mark.parametrize(
    ("workers", "count"),
    [(2, 12), pytest.param(1, 32, marks=pytest.mark.variant), pytest.param(2, 32, marks=pytest.mark.variant)],
)
def test_many_clients(mount, tokens, tmp_path, workers, count):
    source, expected = tokens
    (tmp_path / "expected.json").write_text(json.dumps(expected))
    mounted = mount(source, "--workers", workers)
    train = mounted.path / ".touchfs/iterators" / f"train-{workers}-{count}"
    train.mkdir()
    (train / "spec").write_text('{"shuffle": 3}')
    command = [sys.executable, "-S", "-c", CLIENT, mounted.path, train, tmp_path / "expected.json"]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    clients = [subprocess.Popen([*command, str(seed)], **how) for seed in range(count)]
    steps: list[str] = []
    for client in clients:
        output, errors = client.communicate(timeout=120)
        assert client.returncode == 0, errors
        steps += json.loads(output)
    # Epochs follow each other, so no sample was given twice more often than another one.
    counts = Counter(os.path.relpath(step, mounted.path) for step in steps)
    times = [counts[name] for name in expected["files"]]
    assert len(steps) > count * OPERATIONS // 8
    assert sum(times) == len(steps)
    assert max(times) - min(times) <= 1
    assert mounted.info()["internal_errors"] == 0
    assert (mounted.path / ".touchfs/errors").read_text() == ""
