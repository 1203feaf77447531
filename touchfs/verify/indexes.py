"""Verify what `touchfs.verify.shard` does not: the index of keys, and other files of the index."""

from __future__ import annotations

import filecmp
import os
import tempfile
from concurrent.futures import Executor

from touchfs.catalog.catalog import Catalog
from touchfs.catalog.key_builder import build_keys
from touchfs.catalog.keys import Keys
from touchfs.core.errors import LostWorkerError, TouchfsError
from touchfs.dataset import Dataset
from touchfs.dataset.key_index import keyed_shards
from touchfs.verify.shard import ShardVerdict


def verify_keys(dataset: Dataset, executor: Executor | None) -> ShardVerdict:
    """The verdict of the index of keys: one made again from the catalogs must be the same. Raises LostWorkerError."""
    verdict = ShardVerdict("", "")
    if problem := _problem(dataset, executor):
        verdict.tell("by-key", problem)
    return verdict


def verify_files(dataset: Dataset) -> ShardVerdict:
    """The verdict of files of the index: of those that were damaged when the dataset was opened, and of the catalogs of
    interleaved samples, each of which must have its checksum.
    """
    verdict = ShardVerdict("", "")
    for path in dataset.damaged:
        verdict.tell(path, "was damaged, and is made again: check the disk")
    for shard in () if dataset.interleaved is None else dataset.interleaved.shards:
        try:
            Catalog(shard.catalog, shard.path)
        except TouchfsError as error:
            verdict.tell(f"interleaved/{shard.name}", str(error))
    return verdict


def _problem(dataset: Dataset, executor: Executor | None) -> str:
    if not isinstance(dataset.keys, Keys):
        return ""
    with tempfile.TemporaryDirectory(prefix="touchfs-verify-") as place:
        again = os.path.join(place, os.path.basename(dataset.keys.path))
        try:
            build_keys(again, keyed_shards(dataset.shards), None, executor)
        except LostWorkerError:
            raise
        except TouchfsError as error:
            return f"its index cannot be compared: {error}"
        if filecmp.cmp(again, dataset.keys.path, shallow=False):
            return ""
    return "its index does not fit the catalogs: `touchfs index --force` makes it again"
