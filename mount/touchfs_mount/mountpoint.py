"""What is mounted where, read from mountinfo; checks before mounting; unmounting.

Nothing here touches a path through our own mount: a daemon that waits for itself hangs. What is in the way is found
out before the mount is made, and said with the command that helps.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from touchfs.errors import MountError

log = logging.getLogger(__name__)

FILE_SYSTEM = "fuse.touchfs"

# Exit statuses of `touchfs mount`; the rest of the table is in the command's help.
EXIT_MOUNTPOINT, EXIT_NO_FUSE, EXIT_NOT_PERMITTED, EXIT_TIMEOUT, EXIT_MOUNT_FAILED = 10, 15, 16, 17, 32


@dataclass(frozen=True, slots=True)
class Mounted:
    """One line of mountinfo: what is mounted, and the device number that names its FUSE connection."""

    kind: str
    source: str
    device: str


def resolve(path: str) -> str:
    """The absolute path as mountinfo spells it. The last component is not looked at: it may be a dead mount."""
    absolute = os.path.abspath(path)
    return os.path.join(os.path.realpath(os.path.dirname(absolute)), os.path.basename(absolute))


def mounted_at(path: str) -> Mounted | None:
    """The topmost mount at exactly this path, or None."""
    found = None
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            before, _, after = line.partition(" - ")
            fields, (kind, source, *_) = before.split(" "), after.split(" ")
            if _unescape(fields[4]) == path:
                found = Mounted(kind, _unescape(source), fields[2])
    return found


def prepare(path: str) -> bool:
    """Make sure that `path` can be mounted on: an empty directory with nothing in the way.

    A dead mount of ours is detached; a missing directory is made. Returns whether it was made, so that unmounting can
    remove it again. Raises MountError with what to do.
    """
    if not os.path.exists("/dev/fuse"):
        raise MountError(
            "/dev/fuse is missing: run `modprobe fuse`, or give the container --device /dev/fuse --cap-add SYS_ADMIN",
            exit_status=EXIT_NO_FUSE,
        )
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise MountError("no permission to open /dev/fuse", exit_status=EXIT_NOT_PERMITTED)
    if shutil.which("fusermount3") is None:
        raise MountError("fusermount3 is missing: install the package fuse3", exit_status=EXIT_NO_FUSE)
    mounted = mounted_at(path)
    if mounted is not None and mounted.kind == FILE_SYSTEM:
        if not _is_dead(path):
            raise MountError(
                f"touchfs is already mounted here (from {mounted.source}); `touchfs umount` undoes it",
                path=path,
                exit_status=EXIT_MOUNTPOINT,
            )
        unmount(path, lazy=True)
        mounted = mounted_at(path)
    if mounted is not None and mounted.kind != "autofs":
        raise MountError(
            f"{mounted.kind} is already mounted here; use another directory", path=path, exit_status=EXIT_MOUNTPOINT
        )
    try:
        os.mkdir(path)
        return True
    except FileExistsError:
        pass
    except OSError as error:
        raise MountError(
            f"cannot make the mount point: {error.strerror}", path=path, exit_status=EXIT_MOUNTPOINT
        ) from error
    try:
        with os.scandir(path) as entries:
            occupied = next(entries, None)
    except NotADirectoryError:
        raise MountError("is not a directory", path=path, exit_status=EXIT_MOUNTPOINT) from None
    except OSError as error:
        raise MountError(error.strerror or str(error), path=path, exit_status=EXIT_MOUNTPOINT) from error
    if occupied is not None:
        raise MountError(
            f"is not empty (it holds {occupied.name!r}); mount on an empty directory",
            path=path,
            exit_status=EXIT_MOUNTPOINT,
        )
    return False


def unmount(path: str, *, lazy: bool = False) -> None:
    """Unmount what is mounted at `path`. With `lazy` the name goes at once, and the mount when nobody uses it.

    Raises MountError with the reason of fusermount3, "busy" among them.
    """
    command = ["fusermount3", "-u", *(["-z"] if lazy else []), "--", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().removeprefix("fusermount3: ").rpartition(": ")[2] or "fusermount3 failed"
        raise MountError(f"cannot unmount: {reason}", path=path)


def users(path: str) -> list[str]:
    """The processes that keep the mount busy, as `name (pid)`, as far as we may look.

    Only links in /proc are read: a stat of the files themselves would be a request to the mount.
    """
    inside = re.compile(re.escape(path) + "(/|$)")
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [f"/proc/{pid}/cwd", f"/proc/{pid}/root", *(e.path for e in os.scandir(f"/proc/{pid}/fd"))]
            if any(inside.match(os.readlink(link)) for link in links):
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as name:
                    found.append(f"{name.read().strip()} ({pid})")
        except OSError:
            continue  # it has ended, or is another user's
    return found


def abort(device: str) -> None:
    """Make the kernel fail every request of a connection, now and later. For a mount whose daemon is going."""
    try:
        with open(f"/sys/fs/fuse/connections/{device.partition(':')[2]}/abort", "w", encoding="ascii") as control:
            control.write("1")
    except OSError:
        pass  # not ours to write: closing the descriptor at our exit does the same


def set_read_ahead(device: str, kilobytes: int) -> None:
    """Ask the kernel to read further ahead on a mount. Needs root; without it the mount is merely slower."""
    try:
        with open(f"/sys/class/bdi/{device}/read_ahead_kb", "w", encoding="ascii") as control:
            control.write(str(kilobytes))
    except OSError as error:
        log.info("read-ahead of %s stays as it is: %s", device, error.strerror)


def _is_dead(path: str) -> bool:
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    return False


def _unescape(field: str) -> str:
    """mountinfo writes space, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
