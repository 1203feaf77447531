"""A Lhotse Shar, streamed: its cuts with what its fields hold for them.

Each is marked with the epoch it came in (`ShownSample.shar_epoch`), as in Lhotse, where augmentation may depend on it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

from touchfs.dataset.shown_sample import ShownSample
from touchfs.errors import NotFoundError, UsageError
from touchfs.limits import LIMITS, Limits
from touchfs.node.base import Make
from touchfs.node.manifest_stream import StreamNode
from touchfs.node.seed import Seed
from touchfs.shard import shar_files
from touchfs.shard.find import find_shards
from touchfs.shard.options import Options
from touchfs.stream.open import open_shar_streams, open_streams

Fields: TypeAlias = Mapping[str, Sequence[str | os.PathLike[str]]]


class LazySharIterator(StreamNode):
    """`in_dir` is a directory with all fields; or `fields` names for each field that is wanted, and for `cuts`, the
    file of each shard, which may lie anywhere. JSON lines may be compressed.
    """

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
    ) -> None:
        paths = list_fields(fields, in_dir)
        options = Options(limits=limits)
        streams = open_shar_streams(paths, options) if in_dir is None else open_streams(os.fspath(in_dir), options)
        super().__init__(streams, shuffle_shards, seed, rank, world_size)

    def present(self, make: Make, epoch: int) -> Make:
        return partial(_in_epoch, make, epoch)


def list_fields(fields: Fields | None, in_dir: str | os.PathLike[str] | None) -> dict[str, list[str]]:
    """The files of each shard by field, absolute; of a directory, those of the cuts."""
    if (fields is None) == (in_dir is None):
        raise UsageError("a Shar is told by in_dir, or by the files of its fields: give one of the two")
    if isinstance(fields, str | os.PathLike):
        raise UsageError("fields are lists of files by the names of fields: give a directory as in_dir")
    if in_dir is not None:
        shards = find_shards(os.path.abspath(in_dir))
        if not all(map(shar_files.is_shard, shards)):
            raise NotFoundError("no Lhotse Shar here: expected cuts.*.jsonl", path=os.fspath(in_dir))
        return {shar_files.CUTS: shards}
    listed = {field: [os.path.abspath(path) for path in paths] for field, paths in (fields or {}).items()}
    cuts = listed.pop(shar_files.CUTS, None)
    if not cuts:
        raise UsageError(f"fields are of cuts: name the files of {shar_files.CUTS!r} too")
    for field, paths in listed.items():
        if len(paths) != len(cuts):
            raise UsageError(f"{field!r} has {len(paths)} files, and there are {len(cuts)} of {shar_files.CUTS!r}")
    return {shar_files.CUTS: cuts, **listed}


def _in_epoch(make: Make, epoch: int) -> ShownSample:
    sample: ShownSample = make()
    sample.shar_epoch = epoch
    return sample
