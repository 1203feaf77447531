"""Messages to the kernel that answer no request: `FUSE_NOTIFY_*` of linux/fuse.h (see `requests`).

A notification is a `fuse_out_header` with `unique` 0 and the notification's code in `error`, followed by its body.
"""

from __future__ import annotations

import struct

from touchfs_mount.messages.answers import HEADER

# u64 ino, s64 off, s64 len
_INODE = struct.Struct("<Qqq")
# u64 parent, u32 namelen, u32 flags; the name and a zero follow
_ENTRY = struct.Struct("<QII")
_INVALIDATE_INODE, _INVALIDATE_ENTRY, _RESEND = 2, 3, 7


def invalidate_inode(inode: int) -> bytes:
    """Drop the attributes of an inode, its pages, and what is kept of a listing or a link's target.

    The kernel drops listings and targets only with the offset 0, not with −1.
    """
    return _notification(_INVALIDATE_INODE, _INODE.pack(inode, 0, 0))


def invalidate_entry(directory: int, name: bytes) -> bytes:
    """Drop a name of a directory, also that it is missing. ENOENT: the kernel knows no such name."""
    return _notification(_INVALIDATE_ENTRY, _ENTRY.pack(directory, len(name), 0) + name + b"\0")


def resend() -> bytes:
    """Queue all unanswered requests again. EINVAL: the kernel is older than 6.9."""
    return _notification(_RESEND, b"")


def _notification(code: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(body), code, 0) + body
