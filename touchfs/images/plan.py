"""What of a dataset can be in an image: members of tars that are plain files of this machine, and recordings that are
such files themselves, which lists name.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import as_array
from touchfs.catalog.table import DIRECTORY
from touchfs.containers.shar.files import parse_name
from touchfs.containers.tar.layout import TAR_SUFFIX
from touchfs.core.errors import UsageError
from touchfs.core.location import Location
from touchfs.dataset import Dataset, counted
from touchfs.dataset.shard import ListedShard
from touchfs.format.erofs.layout import DEVICES_MAX
from touchfs.images.devices import Device
from touchfs.images.whole_files import NO_WHOLE_FILES, WholeFiles, WholeFilesFinder
from touchfs.indexing.serving import first_reason
from touchfs.registry.containers import AUDIO_LIST, GZIP_LINES, KALDI, LINES, OTHER_LINES, SHAR, TAR
from touchfs.shard import single

_LISTS = (LINES, GZIP_LINES, OTHER_LINES, AUDIO_LIST, KALDI)


@dataclass(frozen=True, slots=True, eq=False)
class PlannedShard:
    """A shard that is in the image: its position in the dataset, the numbers of its devices, from 1 on, by the names of
    their files, and the whole files that it names.
    """

    position: int
    devices: Mapping[str, int]
    whole: WholeFiles


@dataclass(slots=True)
class ImageLeftOut:
    """What is not in the image: how many files of each kind, and damaged shards with the reason."""

    files: Counter[str] = field(default_factory=Counter)
    damaged: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(f"{counted(count, 'file')} {why}" for why, count in sorted(self.files.items()) if count)


@dataclass(frozen=True, slots=True, eq=False)
class ImagePlan:
    """The devices and shards of an image of a dataset. `left_out` is complete when the image is made.

    The image is a device itself, behind all others: it has the ends of whole files, and what catalogs store.
    """

    dataset: Dataset
    devices: tuple[Device, ...]
    shards: tuple[PlannedShard, ...]
    left_out: ImageLeftOut

    @property
    def device_sizes(self) -> NDArray[np.int64]:
        """The sizes of the devices in bytes by their numbers, which begin with 1."""
        return np.array([0, *(each.fingerprint.size for each in self.devices)])


def plan_image(dataset: Dataset) -> ImagePlan:
    """Find what can be in an image. Raises UsageError if nothing can, or if there are too many files."""
    devices, planned, left_out = list[Device](), list[PlannedShard](), ImageLeftOut()
    root = dataset.limits.audio_root
    finder = WholeFilesFinder(root or "", devices)
    for position, shard in enumerate(dataset.shards):
        whole = finder.find(dataset.catalog(position)) if _may_name(shard, root) else NO_WHOLE_FILES
        if shard.report and not len(whole.rows):
            left_out.damaged[shard.name] = first_reason(dataset, position)
            continue
        own = {path: fingerprint for path, fingerprint in shard.known.file_paths.items() if _is_device(shard, path)}
        if not own and not len(whole.rows):
            left_out.files[_why_not(shard)] += _count_files(dataset, position)
            continue
        if shard.damaged:
            left_out.files["of damaged lines"] += shard.damaged
        numbers = {}
        for path, fingerprint in own.items():
            devices.append(Device(path, fingerprint))
            numbers[os.path.basename(path)] = len(devices)
        planned.append(PlannedShard(position, numbers, whole))
    if not planned:
        reasons = [*filter(None, [str(left_out), *left_out.damaged.values()])]
        why = f": {reasons[0]}" if reasons else ""
        raise UsageError(
            f"no file of it can be in an image, which has members of tars and recordings on this machine{why}",
            path=dataset.source,
        )
    plan = ImagePlan(dataset, tuple(devices), tuple(planned), left_out)
    most = DEVICES_MAX - 1  # the image is one, too
    if len(devices) > most:
        message = f"{len(devices):,} files are too many for one image, which can have {most:,}: name fewer shards"
        raise UsageError(message, path=dataset.source)
    return plan


def why_no_image(shard: ListedShard, audio_root: str | None) -> str:
    """Why no file of a shard can be in an image, as what its files are of; "" if some may. Nothing of it is read."""
    may = _may_name(shard, audio_root) or any(_is_device(shard, path) for path in shard.known.file_paths)
    return "" if may else _why_not(shard)


def _may_name(shard: ListedShard, audio_root: str | None) -> bool:
    """True for a list that may name recordings of this machine."""
    if audio_root is None or shard.known.container not in _LISTS:
        return False
    root = Location.of(audio_root)
    return not root.is_url and root.inside is None


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
