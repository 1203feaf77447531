"""FUSE descriptors: which mount one belongs to, and which processes have one of a mount."""

from __future__ import annotations

import os
import re

from touchfs.posix.mounts import Mount, mounts

_DEVICE = "/dev/fuse"


def is_fuse(descriptor: int, process: int | str = "self") -> bool:
    """True for an open /dev/fuse of a process. Raises OSError if it is not open, or the process is another user's."""
    return os.readlink(f"/proc/{process}/fd/{descriptor}") == _DEVICE


def device_of(descriptor: int, process: int | str = "self") -> str | None:
    """The device number of the mount of a FUSE descriptor. Older kernels do not name it, 6.18 does. Raises OSError."""
    with open(f"/proc/{process}/fdinfo/{descriptor}", encoding="ascii") as file:
        match = re.search(r"^fuse_connection:\s*(\d+)$", file.read(), re.MULTILINE)
    return None if match is None else f"0:{match[1]}"


def mount_of(descriptor: int) -> Mount | None:
    """The mount of a FUSE descriptor in this mount namespace, if the kernel names it."""
    device = device_of(descriptor)
    return next((each for each in mounts() if each.kind.startswith("fuse") and each.device == device), None)


def serves(process: int, device: str) -> bool:
    """True if a process has the FUSE descriptor of a mount. On a kernel that does not say of which mount a descriptor
    is, it may be of another one. False for a process of another user that we may not examine.
    """
    try:
        opened = [int(name) for name in os.listdir(f"/proc/{process}/fd")]
        found = [device_of(each, process) for each in opened if is_fuse(each, process)]
    except OSError:  # it has ended, or is another user's
        return False
    return any(each in (None, device) for each in found)
