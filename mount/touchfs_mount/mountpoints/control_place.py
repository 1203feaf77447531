"""Where the control directory of a mount is: a mount of its own, to which the link `.touchfs` in the mount leads.

Root's are in /run/touchfs, a user's in the state directory, by host and boot, as hosts may share that. Others must be
able to reach the one of a mount with --allow-other: if that is a user's, it is in /tmp. A daemon that was killed leaves
its directory behind, without a mount or with a dead one: the next mount of the same user removes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
from dataclasses import dataclass

from touchfs.core.errors import MountError, UsageError
from touchfs.posix.mounts import Mount, mounts
from touchfs.posix.processes import start_time
from touchfs.posix.trust import make_directory
from touchfs_mount.mountpoints import mountpoint
from touchfs_mount.mountpoints.descriptors import mount_of

KIND = "touchfs-control"
FILE_SYSTEM = f"fuse.{KIND}"
_OF_ROOT = "/run/touchfs"


@dataclass(frozen=True, slots=True)
class ControlPlace:
    """The directory of a control mount, and the target of the link to it."""

    path: str
    link: bytes
    is_ours: bool

    def remove(self) -> None:
        """Detach the mount, and remove the directory if it was made for it. Waits for nobody."""
        with contextlib.suppress(MountError):
            if (mounted := mountpoint.mounted_at(self.path)) is not None and mounted.kind == FILE_SYSTEM:
                mountpoint.unmount(self.path, lazy=True)
        if self.is_ours:
            with contextlib.suppress(OSError):
                os.rmdir(self.path)


def passed(descriptor: int) -> ControlPlace:
    """Where somebody else has mounted a descriptor. Raises UsageError if that cannot be seen here."""
    mounted = mount_of(descriptor)
    if mounted is None:
        raise UsageError("no mount here belongs to this descriptor", path=f"--control /dev/fd/{descriptor}")
    return ControlPlace(mounted.point, os.fsencode(mounted.point), False)


def named(path: str, point: str) -> ControlPlace:
    """A directory that somebody named with `--control`. The link is relative if the name is. Raises MountError."""
    absolute = mountpoint.resolve(path)
    _detach_dead(absolute)
    is_new = not os.path.isdir(absolute)
    try:
        os.makedirs(absolute, mode=0o755, exist_ok=True)
        if os.listdir(absolute):
            raise MountError("--control: is not empty; name another directory", path=path)
    except OSError as error:
        raise MountError(f"--control: {error.strerror}", path=path) from error
    link = absolute if os.path.isabs(path) else os.path.relpath(absolute, point)
    return ControlPlace(absolute, os.fsencode(link), is_new)


def chosen(state_directory: str, *, allow_other: bool) -> ControlPlace:
    """A new directory for a mount. Raises MountError."""
    try:
        if os.geteuid() != 0 and allow_other:
            path = tempfile.mkdtemp(prefix="touchfs-control-", dir="/tmp")
        else:
            above = _above(state_directory)
            clean(above)
            path = os.path.join(above, f"{os.getpid()}-{secrets.token_hex(4)}")
            os.mkdir(path)
        os.chmod(path, 0o755 if allow_other else 0o700)
    except OSError as error:
        raise MountError(
            f"no directory for the control files can be made: {error.strerror}; name one with --control DIR, or leave "
            "them out with --control none",
            path=error.filename,
        ) from error
    return ControlPlace(path, os.fsencode(path), True)


def _above(state_directory: str) -> str:
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            if not os.path.isdir(_OF_ROOT):
                os.makedirs(_OF_ROOT, exist_ok=True)
                os.chmod(_OF_ROOT, 0o755)  # whatever the umask: others must reach the mounts that admit them
            return _OF_ROOT
    above = os.path.join(state_directory, "control", f"{socket.gethostname()}-{_boot()}")
    make_directory(above)
    return above


def _boot() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return "unknown"


def clean(above: str) -> None:
    """Remove what daemons that were killed have left in a directory of control mounts."""
    for name in os.listdir(above):
        path, pid = os.path.join(above, name), name.partition("-")[0]
        if pid.isdigit() and start_time(int(pid)) != "ended":
            continue  # it may be about to mount there; and nobody waits for one that does not answer
        _detach_dead(path)
        with contextlib.suppress(OSError):
            os.rmdir(path)


def clean_after(control: Mount) -> None:
    """Remove a control mount that its daemon has left, as it was killed."""
    if _detach_dead(control.point):
        with contextlib.suppress(OSError):
            os.rmdir(control.point)


def controls_of(mounted: Mount) -> list[Mount]:
    """The control mount of a mount, which names its device and is of the same user; and those that a mount which had
    the device's number before has left, dead or about to end: they come last, as they were mounted before it.

    They are not found by the link `.touchfs`, which the user who mounts may let lead anywhere.
    """
    listed = list(mounts())  # in the order of mounting, except in a copy of a mount namespace
    first = next((place for place, each in enumerate(listed) if each.device == mounted.device), 0)
    return [each for each in (*listed[first:], *listed[:first]) if _is_control_of(each, mounted)]


def _is_control_of(each: Mount, mounted: Mount) -> bool:
    is_of_it = each.kind == FILE_SYSTEM and each.source == mounted.device and each.root == "/"
    return is_of_it and owner_of(each) == owner_of(mounted)


def owner_of(mounted: Mount) -> int:
    """The user who made a FUSE mount."""
    return int(mounted.options.partition("user_id=")[2].partition(",")[0])


def _detach_dead(path: str) -> bool:
    """Detach the control mount at a path if nobody serves it. True if it was dead."""
    mounted = mountpoint.mounted_at(path)
    if mounted is None or mounted.kind != FILE_SYSTEM or not mountpoint.is_dead(path):
        return False
    with contextlib.suppress(MountError):
        mountpoint.unmount(path, lazy=True)
    return True
