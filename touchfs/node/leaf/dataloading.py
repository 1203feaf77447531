"""Lhotse's `split_for_dataloading`: each process of a training job iterates its own share of a leaf.

The iterating process determines its share: its rank comes from RANK and WORLD_SIZE in the environment, or else from
torch.distributed, and its worker number from torch's DataLoader. `touchfs.torch` splits whole graphs in the same way,
and does not split a leaf of such a share again.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TypeVar

from touchfs.core.errors import UsageError
from touchfs.node.core.iterator_node import children_of
from touchfs.node.order.partition import Partition

T = TypeVar("T")


def check_split(split_for_dataloading: bool, partition: Partition) -> bool:
    """Return the flag. Raises UsageError if the leaf is one rank's part already."""
    if split_for_dataloading and partition.world_size > 1:
        raise UsageError("rank and world_size already select a share: leave out split_for_dataloading")
    return split_for_dataloading


def is_split(node: Any) -> bool:
    """Return True if the process that iterates the graph splits one of its leaves."""
    return getattr(node, "split_for_dataloading", False) is True or any(map(is_split, children_of(node)))


def refuse_split(leaf: Any) -> None:
    """Raise UsageError for a split leaf, which cannot be a source of a global shuffle."""
    if leaf.split_for_dataloading:
        raise UsageError("a source of a global shuffle is not split: shuffle it alone, or leave that out")


def rank_of_process() -> tuple[int, int]:
    """Return (rank, world size): (0, 1) outside of distributed training."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return rank_of_environment("split_for_dataloading=True")
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def rank_of_environment(why: str) -> tuple[int, int]:
    """Return (rank, world size) from the environment. Raises UsageError, which names the option `why`."""
    rank, world_size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size)):
        raise UsageError(
            f"{why} needs RANK and WORLD_SIZE in the environment, as torchrun sets them, "
            f"not {rank!r} and {world_size!r}"
        )
    return int(rank), int(world_size)


def share_number() -> tuple[int, int]:
    """Return the number of this process's share (from 0), and how many shares there are."""
    (rank, world_size), (worker, workers) = rank_of_process(), worker_of_process()
    return rank * workers + worker, world_size * workers


def worker_of_process() -> tuple[int, int]:
    """Return the number of this worker of a DataLoader (from 0), and how many it has: (0, 1) elsewhere."""
    loader = sys.modules.get("torch.utils.data")
    worker = None if loader is None else loader.get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)
