"""Paths that do not exist: their files were removed, or are on a disk that is not here now."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from touchfs.posix.mounts import mounts, reached

# Where mount points are made when a disk comes, and removed when it goes: by desktops, automounters and containers.
_OF_DISKS = re.compile(r"/|/mnt|/net|(/run)?/media(/[^/]+)?")
_OCTAL = re.compile(r"\\([0-7]{3})")


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
    with suppress(OSError), open("/etc/fstab", encoding="utf-8", errors="surrogateescape") as lines:
        fields = [line.split() for line in lines if not line.lstrip().startswith("#")]
        points = [_OCTAL.sub(lambda match: chr(int(match[1], 8)), each[1]) for each in fields if len(each) > 1]
        return [point for point in points if os.path.isabs(point) and point != "/"]
    return []
