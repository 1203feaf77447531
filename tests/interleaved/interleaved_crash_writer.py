"""Processes that write interleaved samples until they are killed. Forked by a server that has imported all."""

import os
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem
from killed import kill_at
from written_items import PNG, image, item_batch, text

from touchfs.interleaved.write import InterleavedParquetWriter, InterleavedWebdatasetWriter, writer
from touchfs.interleaved.write.output import StoreOutput

KINDS = {"parquet": InterleavedParquetWriter, "tar": InterleavedWebdatasetWriter}
BATCHES = 3


def write_generation(kind: str, in_store: bool, out: Path, generation: int) -> str:
    """Write a file of three batches; every text in it names the generation."""
    if in_store:  # a store that outlives the process
        opened: Any = lambda path, options: StoreOutput(LocalFileSystem(), path)  # noqa: E731
        writer.open_output = opened
    with KINDS[kind](out).writing(["a.tar"]) as shard:
        for number in range(BATCHES):
            rows = [text(0, f"of {generation}", f"s{number}"), image(1, PNG + bytes(10_000), f"s{number}")]
            rows[0][f"column{number}"] = "x"
            shard.append(item_batch(rows))
    return shard.path


def write_until(kind: str, in_store: bool, out: Path, generation: int, step: int) -> None:
    """Write a generation, and be killed before the operation of this number that names a file of it: an open, a
    rename, a removal.
    """
    operations = ("open", "os.", "shutil.")
    kill_at(
        step, lambda event, values: event.startswith(operations) and any("touchfs-" in str(value) for value in values)
    )
    write_generation(kind, in_store, out, generation)


def append_for_ever(kind: str, out: Path, ready: Any) -> None:
    """Append large batches to one file."""
    data = os.urandom(2**20)
    with KINDS[kind](out).writing(["a.tar"]) as shard:
        number = 0
        while True:
            rows = [image(each, b"%d %d" % (number, each) + data, f"s{number}") for each in range(8)]
            shard.append(item_batch(rows))
            number += 1
            ready.release()
