"""Global batches of MosaicML Streaming. Run in a process of its own: its shared memory and locks end with that.

python mosaicml_batches.py PLACE, with the numbers of samples on standard input, prints a list of [ranks, workers,
batches] for 1 to 4 ranks and 1 to 3 workers; as rank 0 those that one rank's loader gave.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from mosaicml import MDSWriter, StreamingDataset, World, generate_work
from torch.utils.data import DataLoader

BATCH = 8


def batches(numbers: list[int], place: str) -> list[Any]:
    with MDSWriter(out=place, columns={"number": "int"}, size_limit=400) as writer:
        for number in numbers:
            writer.write({"number": number})
    dataset = StreamingDataset(
        local=place, shuffle=True, num_canonical_nodes=1, shuffle_block_size=1000, batch_size=BATCH
    )
    loaded = DataLoader(dataset, BATCH, num_workers=2)
    found: list[Any] = [[0, 2, [batch["number"].tolist() for batch in loaded]]]
    for ranks in (1, 2, 4):
        for workers in (1, 2, 3):
            dataset.batch_size = BATCH // ranks
            # Shape (nodes, ranks, workers, batches, samples). A loader takes workers in turn.
            work = generate_work("random", dataset, World(1, ranks, workers, 0), 0, 0)[0]
            steps = np.moveaxis(work, 2, 1).reshape(ranks, -1, BATCH // ranks)
            global_batches = [[numbers[i] for i in step.flat if i >= 0] for step in np.moveaxis(steps, 1, 0)]
            found.append([ranks, workers, [batch for batch in global_batches if batch]])
    return found


if __name__ == "__main__":
    json.dump(batches(json.load(sys.stdin), sys.argv[1]), sys.stdout)
