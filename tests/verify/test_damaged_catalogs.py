"""Damaged catalogs: no other bytes are served, and `verify` finds each. TOUCHFS_DAMAGES says how many."""

import os
import random
from pathlib import Path

import pytest
from every_kind import OPTIONS, files_of

from touchfs.dataset import Dataset
from touchfs.dataset.shard import Shard
from touchfs.indexing import open_dataset
from touchfs.shard.options import Options
from touchfs.verify.indexes import verify_files
from touchfs.verify.shard import VerifyTask, verify_shard

DAMAGES = int(os.environ.get("TOUCHFS_DAMAGES", "60"))
KINDS = ["tar", "parquet", "jsonl", "rows.lance", "touch", "megatron", "shar", "interleaved", "tar.gz"]
SECTOR = 512


def flipped_bits(data: bytearray, dice: random.Random) -> None:
    for _ in range(dice.choice((1, 1, 1, 2, 9))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def zeroed_sector(data: bytearray, dice: random.Random) -> None:
    start = dice.randrange(0, len(data), SECTOR)
    data[start : start + SECTOR] = bytes(len(data[start : start + SECTOR]))


def truncated(data: bytearray, dice: random.Random) -> None:
    del data[dice.choice((0, dice.randrange(len(data)), len(data) - dice.randrange(1, 20))) :]


def swapped_blocks(data: bytearray, dice: random.Random) -> None:
    size = dice.choice((8, 64, SECTOR))
    one, other = (dice.randrange(0, len(data) - size, size) for _ in range(2))
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def inserted_bytes(data: bytearray, dice: random.Random) -> None:
    place = dice.randrange(len(data) + 1)
    data[place:place] = dice.randbytes(dice.choice((1, 8, 64)))


WAYS = [flipped_bits, zeroed_sector, truncated, swapped_blocks, inserted_bytes]


def catalogs(dataset: Dataset) -> list[tuple[Shard, bool]]:
    """The shards with each of their catalogs, and whether that is one of interleaved samples."""
    items = () if dataset.interleaved is None else dataset.interleaved.shards
    return [*((shard, False) for shard in dataset.shards), *((shard, True) for shard in items)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_bytes_are_served(every_kind: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    source, options, dice = every_kind / kind, OPTIONS.get(kind, Options()), random.Random(kind)
    truth = files_of(source)
    for number in range(KINDS.index(kind), DAMAGES, len(KINDS)):
        dataset = open_dataset(str(source), options=options)
        shard, is_of_items = dice.choice(catalogs(dataset))
        catalog = Path(shard.catalog)
        whole = data = catalog.read_bytes()
        way = WAYS[number % len(WAYS)]
        while data == whole:  # a sector may have been zeros
            damaged = bytearray(whole)
            way(damaged, dice)
            data = bytes(damaged)
        catalog.write_bytes(data)
        verdict = verify_files(dataset) if is_of_items else verify_shard(VerifyTask(shard, options))
        (problem,) = verdict.problems
        assert f"{catalog}: its checksum is wrong: index with --force" in problem
        caplog.clear()
        assert files_of(source) == truth, way.__name__
        assert [record.getMessage() for record in caplog.records] == [f"{catalog}: is damaged, and made again"]
        assert catalog.read_bytes() == whole
