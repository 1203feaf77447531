"""Raises the number of background requests (for read-ahead) that the kernel sends at once, by default 12 per mount.

Twelve requests that hang in one shard would stop the read-ahead, and so nearly all reads, of all other shards. The
limit is set through fusectl, which systemd mounts; the files of a mount in it belong to the mount's owner. If it is not
mounted, as in most containers, root mounts it for a moment in a mount namespace of its own.
"""

from __future__ import annotations

import ctypes
import os

FUSECTL = "/sys/fs/fuse/connections"
BACKGROUND_MAX = 4096
# From this number on the kernel skips read-ahead that no program waits for.
CONGESTED = BACKGROUND_MAX * 3 // 4

_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x00020000, 0x4000, 1 << 18


def widen(device: str) -> bool:
    """Raise the limit for the mount of this device, `major:minor`. True on success. Call it without threads."""
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
