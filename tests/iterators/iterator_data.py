"""A dataset of short recordings with texts, to be iterated."""

import json
from pathlib import Path

import numpy as np

from touchfs.containers.touchnet.writer import TouchNetWriter

SHARDS = {"one": 7, "two": 5, "three": 11}


def make_shards(path: Path) -> list[str]:
    """Shards whose samples are called by number; returns the paths of their files, in dataset order."""
    path.mkdir()
    paths, number = [], 0
    for name, count in sorted(SHARDS.items()):
        with TouchNetWriter(path / name, {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}) as writer:
            for _ in range(count):
                told = {
                    "key": f"talk{number % 3}/{number:03d}",
                    "sample_rate": 8000,
                    "info": {
                        "lang": ["en", "de"][number % 2],
                        "segments": [
                            {"start": i / 200, "end": (i + 1) / 200, "txt": f"w{i}"} for i in range(number % 4)
                        ],
                    },
                }
                writer.add({"audio": bytes(2 * (100 + 80 * number)), "metainfo": json.dumps(told).encode()})
                paths.append(f"shards/{name}/{told['key']}.wav")
                number += 1
    return paths
