"""Who owns the entries of an image, and who may read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from touchfs.format.erofs.inodes import Owner

NS_PER_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Permissions:
    """An owner and a group, and the permission bits of files and of directories."""

    user: int
    group: int
    files: int = 0o444
    directories: int = 0o755

    def at(self, mtime_ns: int) -> Owner:
        """The same with a time, of which an image has the seconds."""
        return Owner(self.user, self.group, self.files, self.directories, mtime_ns // NS_PER_SECOND)


@dataclass(frozen=True, slots=True)
class ImageOwners:
    """The permissions of the root, of `by-key/`, of directories of many shards, and of each shard by its position."""

    root: Permissions
    keys: Permissions
    others: Permissions
    shards: Sequence[Permissions]
