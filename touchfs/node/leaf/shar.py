"""A Lhotse Shar as a stream: its cuts, each with the content of its fields.

Each cut is marked with its epoch (`Sample.shar_epoch`), as in Lhotse, where augmentation may depend on it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

from touchfs.containers.shar import files as shar_files
from touchfs.core.errors import NotFoundError, UsageError
from touchfs.core.location import Location
from touchfs.dataset.sample import Sample
from touchfs.limits import LIMITS, Limits
from touchfs.node.core.iteration import Iteration, Make
from touchfs.node.core.lhotse_names import INDEX_PATH, refuses
from touchfs.node.core.saved import FRESH, Saved
from touchfs.node.core.seed import Seed
from touchfs.node.leaf.dataloading import check_split, share_number
from touchfs.node.leaf.manifest_stream import StreamNode
from touchfs.node.order.partition import Partition
from touchfs.registry.directory.members import find_members
from touchfs.registry.find import find
from touchfs.shard.options import Options
from touchfs.source.lines import PIPE
from touchfs.stream.open import open_shar_streams, open_streams

NOT_OF_SHAR = {
    "index_path": INDEX_PATH,
    "indexes_root": INDEX_PATH,
    "cut_map_fns": "map the samples, whose shard is in sample.shard",
    "slice_length": "shuffle what is indexed, or a buffer of what is not",
}
Fields: TypeAlias = Mapping[str, Sequence[str | os.PathLike[str]]]


class LazySharIterator(StreamNode):
    """A leaf over the cuts of a Lhotse Shar without an index, shard after shard.

    Give a directory with all fields as `in_dir`, or `fields`: a mapping from each selected field, including `cuts`, to
    its files, one for each shard, in any directory. JSON lines may be compressed, and any file may be a
    `pipe:COMMAND`, whose output is stored in a temporary directory while its shard is read.

    `shuffle_shards` orders the shards by `seed` + epoch, or by `seed` in each epoch with `stateful_shuffle=False`. Rank
    `rank` (from 0) of `world_size` visits every world_size-th shard; with `split_for_dataloading` each process of a
    training job takes its own share instead (`touchfs.node.leaf.dataloading`). `limits` are the limits of parsing.
    Items are samples (`Sample`) with `shar_epoch` set.

    Raises UsageError for fields that do not fit together; NotFoundError, FormatError and SourceError for files that
    are missing, damaged or unreadable.
    """

    @refuses(**NOT_OF_SHAR)
    def __init__(
        self,
        fields: Fields | None = None,
        in_dir: str | os.PathLike[str] | None = None,
        *,
        shuffle_shards: bool = False,
        seed: Seed = 42,
        rank: int = 0,
        world_size: int = 1,
        limits: Limits = LIMITS,
        split_for_dataloading: bool = False,
        stateful_shuffle: bool = True,
    ) -> None:
        paths = list_fields(fields, in_dir)
        options = Options(limits=limits)
        streams = open_shar_streams(paths, options) if in_dir is None else open_streams(os.fspath(in_dir), options)
        self.split_for_dataloading = check_split(split_for_dataloading, Partition(rank, world_size))
        super().__init__(streams, shuffle_shards, seed, rank, world_size, stateful_shuffle)

    def begin(self, epoch: int = 0, saved: Saved = FRESH) -> Iteration:
        if self.split_for_dataloading:
            return self.part(*share_number()).begin(epoch, saved)
        return super().begin(epoch, saved)

    def present(self, make: Make, epoch: int) -> Make:
        return partial(_in_epoch, make, epoch)


def list_fields(fields: Fields | None, in_dir: str | os.PathLike[str] | None) -> dict[str, list[str]]:
    """Return the absolute paths of each field's files; for a directory only those of the cuts.

    Raises UsageError unless exactly one of the two is given, or if a field has more or fewer files than the cuts.
    """
    if (fields is None) == (in_dir is None):
        raise UsageError("give exactly one of in_dir and fields")
    if isinstance(fields, str | os.PathLike):
        raise UsageError("fields is a mapping from names to lists of files: give a directory as in_dir")
    if in_dir is not None:
        shards = [shard.path for shard in find(Location.parse(in_dir).absolute).shards]
        if not all(map(shar_files.is_shard, shards)):
            raise NotFoundError("no Lhotse Shar here: expected cuts.*.jsonl", path=os.fspath(in_dir))
        return {shar_files.CUTS: shards}
    listed = {
        field: [name for path in paths for name in _absolute_members(os.fspath(path))]
        for field, paths in (fields or {}).items()
    }
    cuts = listed.pop(shar_files.CUTS, None)
    if not cuts:
        raise UsageError(f"fields must include the files of {shar_files.CUTS!r}")
    for field, paths in listed.items():
        if len(paths) != len(cuts):
            raise UsageError(f"{field!r} has {len(paths)} files, and {shar_files.CUTS!r} has {len(cuts)}")
    return {shar_files.CUTS: cuts, **listed}


def _absolute_members(path: str) -> list[str]:
    if path.startswith(PIPE):
        return [path]
    location = Location.parse(path)
    return [Location.of(name).absolute.path for name in find_members(location) or [location.path]]


def _in_epoch(make: Make, epoch: int) -> Sample:
    sample: Sample = make()
    sample.shar_epoch = epoch
    return sample
