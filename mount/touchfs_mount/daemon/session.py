"""The FUSE descriptor of a mount: mounting, the kernel's first request, and clones."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass

from touchfs.core.errors import MountError
from touchfs_mount.messages import answers
from touchfs_mount.messages.requests import BUFFER_SIZE, parse_init
from touchfs_mount.mountpoints.connecting import Connecting, connect
from touchfs_mount.mountpoints.mountpoint import mounted_at
from touchfs_mount.mountpoints.options import MountOptions

SUBTYPE = "touchfs"
# struct fuse_dev_ioctl: FUSE_DEV_IOC_CLONE = _IOR(229, 0, uint32_t)
_FUSE_DEV_IOC_CLONE = 0x8004E500


@dataclass(frozen=True, slots=True)
class Session:
    """A mount: its FUSE descriptor, and its device number."""

    descriptor: int
    device: str


def mount_session(options: MountOptions) -> Session:
    """Mount, unless somebody else has, and answer the kernel's first request. Raises MountError."""
    descriptor = options.descriptor
    if descriptor is None:
        others = options.admits_others
        descriptor = connect(Connecting(options.path, SUBTYPE, options.fsname, True, options.noexec, others))
    answer_init(descriptor, options.path)
    mounted = mounted_at(options.path)
    return Session(descriptor, mounted.device if mounted is not None else "")


def answer_init(descriptor: int, path: str) -> None:
    """Answer the request with which the kernel begins. Raises MountError."""
    try:
        offer = parse_init(os.read(descriptor, BUFFER_SIZE))
        body = answers.init(offer)
        os.writev(descriptor, (answers.HEADER.pack(answers.HEADER.size + len(body), 0, offer.unique), body))
    except OSError as error:
        raise MountError(f"the kernel closed the connection before it began: {error.strerror}", path=path) from error


def clone_session(descriptor: int) -> None:
    """Replace the FUSE descriptor by a clone, which belongs to the same mount but has its own requests."""
    cloned = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(cloned, _FUSE_DEV_IOC_CLONE, descriptor.to_bytes(4, "little"))
    os.dup2(cloned, descriptor, inheritable=False)
    os.close(cloned)
