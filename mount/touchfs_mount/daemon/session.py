"""libfuse's session: mounting, the kernel's first request, and clones of the descriptor.

Exactly one request is read before the workers are forked, INIT. Until then libfuse has no splice pipe, so every worker
makes a pipe of its own, and a killed worker cannot leave half a request in a pipe that others read.
"""

from __future__ import annotations

import fcntl
import logging
import os
from dataclasses import dataclass

import pyfuse3
import trio

from touchfs_mount.loop import kernel_queue, under_trio
from touchfs_mount.loop.loop import Loop
from touchfs_mount.loop.pool import PoolLimits
from touchfs_mount.mounting.libfuse import MountOptions, fuse_descriptors, stderr_of_libfuse
from touchfs_mount.mounting.mountpoint import mounted_at
from touchfs_mount.requests.environment import Operations

log = logging.getLogger(__name__)

# Limit of parked requests that hang, if the kernel allows only 12 background requests.
HANGING_IN_KERNEL_MAX = 8
# struct fuse_dev_ioctl: FUSE_DEV_IOC_CLONE = _IOR(229, 0, uint32_t)
_FUSE_DEV_IOC_CLONE = 0x8004E500


@dataclass(frozen=True, slots=True)
class MountedSession:
    """A session that is mounted: its FUSE descriptor, and the device number of the mount."""

    descriptor: int
    device: str

    def answer_init(self, operations: Operations, options: MountOptions, counters: memoryview[int]) -> None:
        """Answer the kernel's INIT request."""
        answered: list[bool] = []
        operations.init = lambda: answered.append(True)  # type: ignore[method-assign]
        if options.trio_loop:
            trio.run(under_trio.answer_init, lambda: bool(answered))
        else:
            Loop(self.descriptor, counters).run(until=lambda: bool(answered))
        if not answered:
            raise RuntimeError("the kernel closed the session before it began")

    def pool_limits(self, options: MountOptions) -> PoolLimits:
        """The limits of a worker's pool for data: what the kernel's queue of background requests allows."""
        seconds = options.timeout_seconds
        if kernel_queue.widen(self.device):
            return PoolLimits(timeout_seconds=seconds)
        log.info("no fusectl: the kernel runs few background requests at once, so few hanging reads are kept waiting")
        return PoolLimits(timeout_seconds=seconds, hanging_max=max(HANGING_IN_KERNEL_MAX // options.workers, 1))


def mount_session(operations: Operations, options: MountOptions) -> MountedSession:
    """Mount. Raises RuntimeError with libfuse's message."""
    before = fuse_descriptors() - {options.descriptor}
    with stderr_of_libfuse() as read_stderr:
        try:
            pyfuse3.init(operations, options.target, set(options.fuse_options))
        except RuntimeError as error:
            raise RuntimeError(read_stderr() or str(error)) from error
    (descriptor,) = fuse_descriptors() - before
    os.set_inheritable(descriptor, False)  # libfuse leaves it open for programs that we run
    mounted = mounted_at(options.path)
    return MountedSession(descriptor, mounted.device if mounted is not None else "")


def clone_session(descriptor: int) -> None:
    """Replace the FUSE descriptor by a clone, which belongs to the same session but has its own requests."""
    cloned = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(cloned, _FUSE_DEV_IOC_CLONE, descriptor.to_bytes(4, "little"))
    os.dup2(cloned, descriptor, inheritable=False)
    os.close(cloned)
