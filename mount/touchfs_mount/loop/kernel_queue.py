"""How many background requests, those for read-ahead, the kernel has under way at once: 12 for a whole mount.

Twelve that hang in one shard would stop the read-ahead, and so nearly all reads, of all others. So we have the kernel
take more. It is told through fusectl, which systemd mounts, and where the files of a mount are its owner's. Where it
is not mounted, as in most containers, root mounts it in a mount namespace of its own, for as long as it takes.
"""

from __future__ import annotations

import ctypes
import os

FUSECTL = "/sys/fs/fuse/connections"
BACKGROUND_MAX = 4096
# From that on the kernel leaves out read-ahead that nobody waits for.
CONGESTED = BACKGROUND_MAX * 3 // 4

_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x00020000, 0x4000, 1 << 18


def widen(device: str) -> bool:
    """Whether the kernel takes more for the mount of this device, `major:minor`. To be called without threads."""
    connection = os.path.join(FUSECTL, device.rpartition(":")[2])
    if os.path.isdir(connection):
        return _write(connection)
    if os.geteuid() != 0:
        return False
    child = os.fork()
    if child == 0:
        os._exit(not (_mount_fusectl() and _write(connection)))
    return os.waitpid(child, 0)[1] == 0


def _mount_fusectl() -> bool:
    library = ctypes.CDLL(None)
    failed: int = library.unshare(_CLONE_NEWNS)
    failed = failed or library.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    failed = failed or library.mount(b"fusectl", FUSECTL.encode(), b"fusectl", 0, None)
    return not failed


def _write(connection: str) -> bool:
    try:
        for name, value in (("max_background", BACKGROUND_MAX), ("congestion_threshold", CONGESTED)):
            with open(os.path.join(connection, name), "w", encoding="ascii") as file:
                file.write(f"{value}\n")
    except OSError:
        return False
    return True
