"""The owners and modes of a kernel image: those that a mount would show."""

from __future__ import annotations

import stat
from dataclasses import replace

from touchfs.dataset import Dataset
from touchfs.images.owners import ImageOwners, Permissions
from touchfs_mount.requests.access import DEFAULT_MODES, Modes, Ownership, read_source_modes


def image_owners(dataset: Dataset, modes: Modes = DEFAULT_MODES, *, allow_other: bool) -> ImageOwners:
    """The permissions of a dataset's entries. Unless others are allowed, only the owner of the root may look into it:
    EROFS hides from nobody what modes do not.
    """
    # Ids of shards count from 1, as in a tree without a mount.
    shard_ids = range(1, len(dataset.listed) + 1)
    if allow_other and modes is DEFAULT_MODES:
        modes = read_source_modes(dataset).modes(shard_ids)
    root = _permissions(modes.root)
    return ImageOwners(
        root=root if allow_other else replace(root, directories=0o700),
        keys=_permissions(modes.of_keys()),
        others=_permissions(modes.others),
        shards=[_permissions(modes.shards.get(shard_id, modes.others)) for shard_id in shard_ids],
    )


def _permissions(ownership: Ownership) -> Permissions:
    files, directories = (stat.S_IMODE(ownership.modes[kind]) for kind in (stat.S_IFREG, stat.S_IFDIR))
    return Permissions(ownership.user, ownership.group, files, directories)
