"""Lhotse's `split_for_dataloading`: a leaf of which each process of a training job takes a share of its own.

Which share that is, the process says that iterates: its rank, by RANK and WORLD_SIZE in the environment or else by
torch.distributed, and its worker, where it is one of torch's. `touchfs.torch` shares whole graphs in the same way, and
a leaf of a share is not split again.
"""

from __future__ import annotations

import copy
import os
import sys
from dataclasses import replace
from typing import Any, TypeVar, cast

from touchfs.errors import UsageError
from touchfs.node.core.base import children_of
from touchfs.node.order.partition import Partition

T = TypeVar("T")


def check_split(split_for_dataloading: bool, partition: Partition) -> bool:
    if split_for_dataloading and partition.world_size > 1:
        raise UsageError("rank and world_size say already which share this is: leave out split_for_dataloading")
    return split_for_dataloading


def is_split(node: Any) -> bool:
    """Whether a leaf of a graph is split by the process that iterates it."""
    return getattr(node, "split_for_dataloading", False) is True or any(map(is_split, children_of(node)))


def refuse_split(leaf: Any) -> None:
    if leaf.split_for_dataloading:
        raise UsageError("a source of a global shuffle is not split: shuffle it alone, or leave that out")


def share_of_process(leaf: T) -> T:
    """The share of a leaf, which has an order, that is this process's."""
    share: Any = copy.copy(leaf)
    share.split_for_dataloading = False
    share.order = replace(share.order, partition=share.order.partition.for_worker(*_place()))
    return cast(T, share)


def rank_of_process() -> tuple[int, int]:
    """The rank and how many there are: (0, 1) outside of distributed training."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return rank_of_environment("split_for_dataloading=True")
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def rank_of_environment(why: str) -> tuple[int, int]:
    rank, world_size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size)):
        raise UsageError(
            f"{why} needs RANK and WORLD_SIZE in the environment, as torchrun sets them, "
            f"not {rank!r} and {world_size!r}"
        )
    return int(rank), int(world_size)


def _place() -> tuple[int, int]:
    """Which share is this process's, of how many."""
    rank, world_size = rank_of_process()
    loader = sys.modules.get("torch.utils.data")
    worker = None if loader is None else loader.get_worker_info()
    if worker is None:
        return rank, world_size
    return rank * worker.num_workers + worker.id, world_size * worker.num_workers
