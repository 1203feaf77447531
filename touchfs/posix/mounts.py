"""The mounts of this mount namespace, read from /proc/self/mountinfo, and disks that are not mounted now."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

# Types of file systems whose files are on other machines, or may be.
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs", "ncpfs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.juicefs", "fuse.touchfs"}
)
_ESCAPE = re.compile(rb"\\([0-7]{3})")
# Where mount points are made when a disk comes, and removed when it goes: by desktops, automounters and containers.
_OF_DISKS = re.compile(r"/|/mnt|/net|(/run)?/media(/[^/]+)?")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: its id (`mnt_id`), the id of the mount that it is in, device number (unique while it is mounted),
    directory of the file system (`/`, except for a bind mount of a part of it), mount point, type, source, and the
    options of the file system.
    """

    number: str
    parent: str
    device: str
    root: str
    point: str
    kind: str
    source: str
    options: str


def mounts() -> Iterator[Mount]:
    """Yield all mounts; a later one hides an earlier one at the same point. Raises OSError without /proc."""
    with open("/proc/self/mountinfo", "rb") as lines:  # as bytes: a carriage return in a path does not end a line
        for line in lines:
            before, _, after = line.partition(b" - ")
            kind, source, options = after.rstrip(b"\n").split(b" ", 2)
            yield Mount(*map(_text, (*before.split(b" ")[:5], kind, source, options)))


def reached(path: str, listed: Iterable[Mount]) -> Mount | None:
    """The mount that a program reaches at an absolute path without links. Asks no file system, as that may not answer.

    None if that mount is not listed, which in a chroot may be so.
    """
    listed = list(listed)
    numbers = {each.number for each in listed}
    covering = {}
    for each in listed:
        parent = each.parent if each.parent in numbers and each.parent != each.number else None
        covering[parent, each.point] = each
    found = None
    for directory in (*reversed(PurePosixPath(path).parents), path):
        while above := covering.get((None if found is None else found.number, str(directory))):
            found = above
    return found


def may_be_away(path: str) -> bool:
    """Whether an absolute path that does not exist may be on a disk that is not here now.

    The mount point of such a disk is an empty directory; or it is in /etc/fstab or below an automounter and nothing is
    mounted there; or it is missing itself, where mount points come and go. A link may lead there, too.
    """
    path = os.path.realpath(path)
    if any(os.path.commonpath([point, path]) == point and not os.path.ismount(point) for point in _points_of_fstab()):
        return True
    above = path
    try:
        while not _exists(above := os.path.dirname(above)):
            pass
        with suppress(OSError):  # a system without /proc
            if (mount := reached(above, mounts())) is not None and mount.kind == "autofs":
                return True
        with os.scandir(above) as entries:
            is_empty = next(entries, None) is None
    except OSError:
        return True  # we may not look, or the disk does not answer
    return is_empty or _OF_DISKS.fullmatch(above) is not None


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _points_of_fstab() -> list[str]:
    """The mount points of /etc/fstab, but for the root."""
    with suppress(OSError), open("/etc/fstab", "rb") as lines:
        fields = [line.split() for line in lines if not line.lstrip().startswith(b"#")]
        points = [_text(each[1]) for each in fields if len(each) > 1]
        return [point for point in points if os.path.isabs(point) and point != "/"]
    return []


def _text(field: bytes) -> str:
    """Decode a field: space, tab, newline and backslash are written as three octal digits."""
    if b"\\" in field:  # seldom, and all are read often
        field = _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field)
    return os.fsdecode(field)
