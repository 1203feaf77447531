"""Mounts that exist before their daemon, which is passed the open FUSE descriptor.

Somebody else may have made the mount: a container runtime, or mount.fuse3(8) with `drop_privileges`. Its mount point is
then `/dev/fd/N`. Our own process makes it on autofs. There only processes of the automounter's group reach the
directory before the mount is ready, others wait, and a daemon has left that group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from touchfs.core.errors import MountError, UsageError
from touchfs.posix.mounts import mounts, reached
from touchfs_mount.mountpoints import mountpoint
from touchfs_mount.mountpoints.connecting import Connecting, mount_as_root
from touchfs_mount.mountpoints.descriptors import is_fuse, mount_of
from touchfs_mount.mountpoints.options import MountOptions


def passed_descriptor(path: str) -> int | None:
    """The FUSE descriptor that a mount point `/dev/fd/N` means; None for a directory. Raises MountError."""
    match = re.fullmatch(r"/dev/fd/(\d+)", path)
    if match is None:
        return None
    descriptor = int(match[1])
    with suppress(OSError):
        if is_fuse(descriptor):
            os.set_inheritable(descriptor, False)  # it is for us, and not for programs that we run
            return descriptor
    raise MountError("is no open /dev/fuse", path=path, exit_status=mountpoint.EXIT_MOUNTPOINT)


def adopt(options: MountOptions, descriptor: int, prefix: str | None) -> MountOptions:
    """The options of a mount that somebody else made. If it is in another mount namespace, `prefix` is its path there,
    and its path here stays `/dev/fd/N`, where nothing is ever unmounted. Others may be able to enter it: its options
    cannot be seen.

    Raises UsageError if the path is not known, and MountError if all users could read all files.
    """
    # The program that mounts for us may not be able to do so again: there are control files only if they are asked for.
    has_control = options.control is not None or options.control_descriptor is not None
    options = replace(options, has_control=options.has_control and has_control)
    mounted = mount_of(descriptor)
    if mounted is None:
        if prefix is None:
            reason = "no mount here belongs to this descriptor: --path-prefix says where it is"
            raise UsageError(reason, path=options.path)
        return replace(options, descriptor=descriptor, allow_other=not options.allow_root)
    words = mounted.options.split(",")
    allow_other = "allow_other" in words
    if allow_other and "default_permissions" not in words:
        raise MountError(
            "allow_other without default_permissions would show all files to all users: mount it with both",
            path=mounted.point,
            exit_status=mountpoint.EXIT_NOT_PERMITTED,
        )
    return replace(
        options, path=mounted.point, descriptor=descriptor, allow_other=allow_other and not options.allow_root
    )


@contextmanager
def mounted_on_autofs(options: MountOptions) -> Iterator[MountOptions]:
    """If the mount point is on autofs, mount in this process, and yield options with the descriptor. An exception
    unmounts. Anywhere else, yield the options as they are. Raises MountError.
    """
    if os.geteuid() != 0 or not _is_on_autofs(options.path):
        yield options
        return
    descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        request = Connecting(options.path, "touchfs", options.fsname, True, options.noexec, options.admits_others)
        mount_as_root(request, descriptor)
        try:
            yield replace(options, descriptor=descriptor)
        except BaseException:
            with suppress(MountError):  # the first error says more
                mountpoint.unmount(options.path, lazy=True)
            raise
    finally:
        os.close(descriptor)


def _is_on_autofs(path: str) -> bool:
    nearest = reached(path, mounts())
    return nearest is not None and nearest.kind == "autofs"
