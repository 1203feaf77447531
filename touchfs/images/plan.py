"""What of a dataset can be in an image: plain files of this machine that are tars, and the members in them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from touchfs.catalog.columns import as_array
from touchfs.catalog.table import DIRECTORY
from touchfs.containers.shar.files import parse_name
from touchfs.containers.tar.layout import TAR_SUFFIX
from touchfs.core.errors import UsageError
from touchfs.dataset import Dataset, counted
from touchfs.dataset.shard import ListedShard
from touchfs.format.erofs.layout import DEVICES_MAX
from touchfs.indexing.serving import first_reason
from touchfs.registry.containers import SHAR, TAR
from touchfs.shard import single
from touchfs.source.fingerprint import Fingerprint


@dataclass(frozen=True, slots=True)
class Device:
    """A file that has members: the kernel takes it for a device. Devices are numbered from 1 on."""

    path: str
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """A shard that is in the image: its position in the dataset, and the numbers of its devices by the names of their
    files.
    """

    position: int
    devices: Mapping[str, int]


@dataclass(slots=True)
class ImageLeftOut:
    """What is not in the image: how many files of each kind, and damaged shards with the reason."""

    files: Counter[str] = field(default_factory=Counter)
    damaged: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(f"{counted(count, 'file')} {why}" for why, count in sorted(self.files.items()) if count)


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """The devices and shards of an image of a dataset. `left_out` is complete when the image is made."""

    dataset: Dataset
    devices: tuple[Device, ...]
    shards: tuple[PlannedShard, ...]
    left_out: ImageLeftOut


def plan_image(dataset: Dataset) -> ImagePlan:
    """Find what can be in an image. Raises UsageError if nothing can, or if there are too many files."""
    devices, planned, left_out = list[Device](), list[PlannedShard](), ImageLeftOut()
    for position, shard in enumerate(dataset.shards):
        if shard.report:
            left_out.damaged[shard.name] = first_reason(dataset, position)
            continue
        own = {path: fingerprint for path, fingerprint in shard.known.file_paths.items() if _is_device(shard, path)}
        if not own:
            left_out.files[_why_not(shard)] += _count_files(dataset, position)
            continue
        numbers = {}
        for path, fingerprint in own.items():
            devices.append(Device(path, fingerprint))
            numbers[os.path.basename(path)] = len(devices)
        planned.append(PlannedShard(position, numbers))
    if not planned:
        reasons = [*filter(None, [str(left_out), *left_out.damaged.values()])]
        why = f": {reasons[0]}" if reasons else ""
        raise UsageError(
            f"no file of it can be in an image, which has members of tars on this machine{why}", path=dataset.source
        )
    if len(devices) > DEVICES_MAX:
        message = f"{len(devices):,} tars are too many for one image, which can have {DEVICES_MAX:,}: name fewer shards"
        raise UsageError(message, path=dataset.source)
    return ImagePlan(dataset, tuple(devices), tuple(planned), left_out)


def why_no_image(shard: ListedShard) -> str:
    """Why no file of a shard can be in an image, as what its files are of; "" if some may. Nothing of it is read."""
    return "" if any(_is_device(shard, path) for path in shard.known.file_paths) else _why_not(shard)


def _is_device(shard: ListedShard, path: str) -> bool:
    """True for a file of a shard that is a tar on this machine, and not compressed."""
    container = shard.known.container
    if not shard.known.file_paths[path].is_local:
        return False
    if container is TAR:
        return os.path.basename(path) in single.without_lists(shard.files)
    if container is SHAR:
        parsed = parse_name(os.path.basename(path))
        return parsed is not None and not parsed.compression and path.lower().endswith(TAR_SUFFIX)
    return False


def _why_not(shard: ListedShard) -> str:
    known = shard.known
    if not all(fingerprint.is_local for fingerprint in known.files.values()):
        return "of remote shards"
    return "of compressed shards" if known.compressed_files else f"of shards that are {known.container.name}"


def _count_files(dataset: Dataset, position: int) -> int:
    return int(np.count_nonzero(as_array(dataset.catalog(position).tables["shards"].kind) != DIRECTORY))
