"""touchfs umount"""

from __future__ import annotations

import click

from touchfs.errors import MountError

# A daemon ends within milliseconds of an unmount that was not lazy.
END_SECONDS = 10.0


@click.command("umount")
@click.argument("mountpoints", metavar="MOUNTPOINT…", nargs=-1, required=True, type=click.Path())
@click.option("--lazy", is_flag=True, help="Detach the mount at once, even if it is in use or its daemon is gone.")
def command(mountpoints: tuple[str, ...], lazy: bool) -> None:
    """Unmount datasets.

    \b
    Example:
      touchfs umount /mnt/speech
    """
    from touchfs_mount.mounting.mountpoint import FILE_SYSTEM, mounted_at, resolve, unmount, users, wait_for_end

    for mountpoint in mountpoints:
        path = resolve(mountpoint)
        mounted = mounted_at(path)
        if mounted is None or mounted.kind != FILE_SYSTEM:
            raise MountError("touchfs is not mounted here", path=path)
        try:
            unmount(path, lazy=lazy)
        except MountError as error:
            busy = users(path)
            if not busy:
                raise
            raise MountError(f"in use by {', '.join(busy)}: end them, or use --lazy", path=path) from error
        if not lazy:
            wait_for_end(mounted.device, END_SECONDS)
