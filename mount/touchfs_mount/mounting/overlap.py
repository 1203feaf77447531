"""Mount points that overlap with the dataset, or with files of the daemon, are refused."""

from __future__ import annotations

import os

from touchfs.core.errors import MountError
from touchfs.core.location import Location
from touchfs.source.scratch.store import Scratch
from touchfs_mount.mounting.request import MountRequest
from touchfs_mount.mountpoints import mountpoint


def refuse_nesting(source: str, point: str) -> None:
    """Raise MountError if one path contains the other. A mount inside its source would be listed, indexed and copied as
    a part of it; a source inside its mount would be hidden.
    """
    if is_inside(point, source):
        reason = "the mount point is inside the dataset"
    elif is_inside(source, point):
        reason = "the dataset is inside the mount point"
    else:
        return
    beside = f"{min(source, point, key=len)}.mnt"
    raise MountError(f"{reason}: mount beside it, at {beside}", path=point, exit_status=mountpoint.EXIT_MOUNTPOINT)


def refuse_overlap(request: MountRequest) -> None:
    """Raise MountError if files of the daemon are inside the mount point: it would wait for itself. Files that
    it only reads cannot be there, because a mount point must be empty.
    """
    refuse_nesting(Location.of(request.source).resolved, request.options.path)
    scratch = Scratch.configured().directory
    written_paths = {
        "index": request.index_dir,
        "state": request.state_path,
        "scratch store": scratch,
    }
    if request.log.file is not None:
        written_paths["log"] = request.log.file
    if request.metrics is not None and request.metrics.path is not None:
        written_paths["socket of --metrics"] = request.metrics.path
    for name, path in written_paths.items():
        if is_inside(os.path.realpath(path), request.options.path):
            raise MountError(
                f"the {name} {path} is inside the mount point",
                path=request.options.path,
                exit_status=mountpoint.EXIT_MOUNTPOINT,
            )


def is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
