"""The root of the mount, as programs see it. All calls on it are made by threads: it may not answer."""

from __future__ import annotations

import os

import trio

from touchfs.core.errors import MountError, shortage_of
from touchfs_mount.mountpoints import mountpoint

# Sequential reads are a third faster than with the kernel's 128. A wider window gains nothing, and hurts users of mmap.
READ_AHEAD_KB = 512


class MountedRoot:
    """The mount at `path`, with the device number by which it differs from a later mount there."""

    def __init__(self, path: str, device: str) -> None:
        self.path = path
        self._device = device

    async def answer(self) -> None:
        """Wait until the root answers a stat and a listing. A thread that hangs is left behind if this is cancelled."""
        await trio.to_thread.run_sync(_access, self.path, abandon_on_cancel=True)

    async def answer_statfs(self) -> None:
        """Like `answer`, for a statfs: the kernel has no answer to it in a cache. Raises OSError."""
        try:
            await trio.to_thread.run_sync(os.statvfs, self.path, abandon_on_cancel=True)
        except RuntimeError as error:
            lacking = shortage_of(error)
            if lacking is None:
                raise
            raise OSError(lacking, str(error)) from error

    async def answer_within(self, seconds: float) -> None:
        """Wait until the root answers. Raises MountError if it does not."""
        try:
            with trio.fail_after(seconds):
                await self.answer()
        except trio.TooSlowError:
            message = f"did not answer within {seconds:.0f} s"
            raise MountError(message, path=self.path, exit_status=mountpoint.EXIT_TIMEOUT) from None
        except OSError as error:
            message = f"does not answer: {error.strerror}"
            raise MountError(message, path=self.path, exit_status=mountpoint.EXIT_MOUNT_FAILED) from error

    def widen_read_ahead(self) -> None:
        """Let the kernel read further ahead of sequential readers."""
        mountpoint.set_read_ahead(self._device, READ_AHEAD_KB)

    async def detach(self) -> None:
        """Unmount, or detach the name if the mount is busy."""
        await trio.to_thread.run_sync(mountpoint.detach, self.path, self._device)


def _access(path: str) -> None:
    os.stat(path)
    os.listdir(path)
