"""Readers of the spike, each a process of its own: `python spike_reader.py ROLE MOUNTPOINT STOP_FILE SEED`.

They say when they have begun, run until STOP_FILE exists and they have done something twice, and print one JSON line:
what they did, and the first thing that was wrong, if any.
"""

import json
import os
import random
import sys
from pathlib import Path

from spike_daemon import ROWS, bytes_of, size_of


def read_whole(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 17):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def compare(root: str, choose: random.Random) -> str | None:
    row = choose.randrange(ROWS)
    path = f"{root}/data/{row:07d}"
    if read_whole(path) != bytes_of(row, 0, size_of(row)):
        return f"row {row} has other bytes"
    return None if os.stat(path).st_size == size_of(row) else f"row {row} has another size"


def list_some(root: str, choose: random.Random) -> str | None:
    with os.scandir(f"{root}/data") as entries:
        names = [entry.name for entry, _ in zip(entries, range(3_000), strict=False)]
    return None if names == [f"{row:07d}" for row in range(len(names))] else "the listing has gaps"


def main() -> None:
    role, root, stop, seed = sys.argv[1:]
    choose = random.Random(int(seed))
    done, wrong, steps = 0, None, []
    while wrong is None and not (done > 1 and Path(stop).exists()):
        try:
            if role == "step":
                steps.append(int(read_whole(f"{root}/.touchfs/next")))
            else:
                wrong = (compare if role == "compare" else list_some)(root, choose)
        except OSError as error:
            wrong = f"{role}: {error}"
        done += 1
        if done == 1:
            print("begun", flush=True)
    print(json.dumps({"role": role, "done": done, "wrong": wrong, "steps": steps}))


if __name__ == "__main__":
    main()
