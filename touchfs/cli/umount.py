"""touchfs umount"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from touchfs.core.errors import MountError
from touchfs.posix.mounts import Mount, mounts

if TYPE_CHECKING:
    from touchfs_mount.mountpoints.image_records import ImageRecord

log = logging.getLogger(__name__)

# A daemon ends within milliseconds of an unmount that was not lazy.
END_SECONDS = 10.0
# Programs such as `touchfs status` and df look at each mount for milliseconds: it is busy then, and soon no longer.
LOOK_SECONDS = 1.0


@click.command("umount")
# Not type=click.Path(): its stat would wait for a mount that hangs.
@click.argument(
    "mountpoints", metavar="MOUNTPOINT…", nargs=-1, required=True, shell_complete=click.Path().shell_complete
)
@click.option("--lazy", is_flag=True, help="Detach the mount at once, even if it is in use or its daemon is gone.")
@click.option("--abort", is_flag=True, help="First fail all pending requests, even those that hang.")
def command(mountpoints: tuple[str, ...], lazy: bool, abort: bool) -> None:
    """Unmount datasets.

    \b
    Example:
      touchfs umount /mnt/speech
    """
    from touchfs_mount.mounting.status import other_owner, touchfs_at, whole_at
    from touchfs_mount.mountpoints import control_place
    from touchfs_mount.mountpoints.image_records import image_at
    from touchfs_mount.mountpoints.mountpoint import abort as abort_requests
    from touchfs_mount.mountpoints.mountpoint import daemon_of, resolve, unmount, wait_for_end

    for mountpoint in mountpoints:
        path = resolve(mountpoint)
        if (image := image_at(path)) is not None:
            _unmount_image(*image, lazy=lazy or abort)
            continue
        mounted = whole_at(path) if abort else touchfs_at(path)
        if os.geteuid() != 0 and (user := other_owner(mounted)):
            raise MountError(f"this is the mount of {user}: unmount it as {user}", path=path)
        controls, others = control_place.controls_of(mounted), _others(mounted)
        if abort:
            for each in (*controls, mounted):  # they end together
                abort_requests(each)
        with daemon_of(mounted.device) as daemon:
            # Programs keep their open files in an aborted mount: it would be busy.
            if lazy or abort:
                unmount(path, lazy=True)
            else:
                _unmount_unused(path, unmount)
            if not (_is_mounted_elsewhere(path, others) or lazy or abort or wait_for_end(daemon, END_SECONDS)):
                message = "%s: unmounted, but its daemon goes on: perhaps another container still has the mount"
                log.warning(message, path)
        for control in controls:
            control_place.clean_after(control)


def _unmount_image(mounted: Mount, record: ImageRecord, *, lazy: bool) -> None:
    """Unmount an image, and forget what is known of it if it is mounted nowhere else."""
    from touchfs_mount.mountpoints import image_records
    from touchfs_mount.mountpoints.erofs import detach

    path, others = mounted.point, _others(mounted)
    if lazy:
        detach(path, lazy=True)
    else:
        _unmount_unused(path, detach)
    if _is_mounted_elsewhere(path, others):
        return
    image_records.remove(mounted.device)
    if record.is_created:
        with suppress(OSError):
            os.rmdir(path)


def _others(mounted: Mount) -> set[Mount]:
    """All other mounts of a file system. Once that is unmounted, a new one may have its number."""
    return {each for each in mounts() if each.device == mounted.device and each != mounted}


def _is_mounted_elsewhere(path: str, others: set[Mount]) -> bool:
    """True if some of these mounts are still there, which is told."""
    left = [each.point for each in mounts() if each in others]
    if left:
        log.warning("%s: unmounted here, but still mounted at %s", path, ", ".join(left))
    return bool(left)


def _unmount_unused(path: str, unmount: Callable[[str], None]) -> None:
    """Unmount what no program uses, or MountError with the names of those that do."""
    from touchfs_mount.mounting.overlap import is_inside
    from touchfs_mount.mountpoints.mountpoint import users

    until = time.monotonic() + LOOK_SECONDS
    while True:
        try:
            return unmount(path)
        except MountError as error:
            if "busy" in str(error) and time.monotonic() < until:
                time.sleep(LOOK_SECONDS / 20)
                continue
            if is_inside(os.readlink("/proc/self/cwd"), path):  # so is the shell
                raise MountError("this directory is in it: cd out of it first", path=path) from error
            if not (busy := users(path)):
                raise
            raise MountError(f"in use by {', '.join(busy)}: end them, or use --lazy", path=path) from error
