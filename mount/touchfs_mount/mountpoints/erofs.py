"""Mounts an EROFS image whose devices are files, by fsopen, fsconfig and fsmount.

mount(2) takes a page of options, which the paths of 300 tars fill. Here each device is an option of its own. The kernel
opens the image and the devices by `/proc/self/fd/N`: what we have opened and checked, wherever its path leads by now.
All devices are always given, so the kernel never looks for one that the image names.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from touchfs.core.errors import MountError
from touchfs_mount.mountpoints.mountpoint import EXIT_MOUNT_FAILED, EXIT_NOT_PERMITTED

KIND = "erofs"
ADVICE = "leave out --kernel"
# linux/mount.h and asm-generic/unistd.h, the same on all processors
_MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT = 429, 430, 431, 432
_CLOEXEC, _MOVE_EMPTY_PATH, _AT_FDCWD = 1, 4, -100
_SET_FLAG, _SET_STRING, _CREATE = 0, 1, 6
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _NOATIME = 1, 2, 4, 8, 16
_MESSAGE_MAX = 4096

_libc = ctypes.CDLL(None, use_errno=True)


class UnfitError(MountError):
    """This machine or these data cannot have a mount by the kernel, for a `reason`. A plain mount can serve them."""

    def __init__(self, reason: str, *, path: str | None = None, exit_status: int = EXIT_MOUNT_FAILED) -> None:
        super().__init__(f"{reason}: {ADVICE}", path=path, exit_status=exit_status)
        self.reason = reason


@contextmanager
def made(image: int, devices: Sequence[int], *, noexec: bool = False) -> Iterator[int]:
    """A mount of an image that is nowhere yet, as a descriptor. Raises UnfitError if the kernel cannot make it."""
    context = _opened()
    try:
        _set(context, "source", image)
        for device in devices:
            _set(context, "device", device)
        _call(_FSCONFIG, context, _SET_FLAG, b"ro", None, 0)
        try:
            _call(_FSCONFIG, context, _CREATE, None, None, 0)
        except OSError as error:
            raise _unfit(error, context) from error
        flags = _RDONLY | _NOSUID | _NODEV | _NOATIME | (_NOEXEC if noexec else 0)
        mounted = _call(_FSMOUNT, context, _CLOEXEC, flags)
    finally:
        os.close(context)
    try:
        yield mounted
    finally:
        os.close(mounted)


def attach(mounted: int, path: str) -> None:
    """Put a mount that is nowhere yet at a path without links. Raises OSError."""
    _call(_MOVE_MOUNT, mounted, b"", _AT_FDCWD, os.fsencode(path), _MOVE_EMPTY_PATH)


def detach(path: str, *, lazy: bool = False) -> None:
    """Unmount a path. Raises MountError."""
    mnt_detach = 2
    if _libc.umount2(os.fsencode(path), mnt_detach if lazy else 0):
        raise MountError(f"cannot unmount: {os.strerror(ctypes.get_errno()).lower()}", path=path)


def _opened() -> int:
    try:
        return _call(_FSOPEN, KIND.encode(), _CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.ENOSYS):
            raise UnfitError("this kernel has no EROFS") from error
        if error.errno == errno.EPERM:
            problem = "not permitted to mount; a container needs --cap-add SYS_ADMIN"
            raise UnfitError(problem, exit_status=EXIT_NOT_PERMITTED) from error
        raise UnfitError(f"EROFS cannot be mounted: {error.strerror}") from error


def _set(context: int, option: str, descriptor: int) -> None:
    try:
        _call(_FSCONFIG, context, _SET_STRING, option.encode(), f"/proc/self/fd/{descriptor}".encode(), 0)
    except OSError as error:
        raise UnfitError(f"this kernel takes no {option} of an image: {error.strerror}") from error


def _unfit(error: OSError, context: int) -> UnfitError:
    if error.errno == errno.ENOTBLK:
        return UnfitError(
            "images in files need Linux 6.12 with CONFIG_EROFS_FS_BACKED_BY_FILE, and the index ($XDG_CACHE_HOME) on a "
            "disk, not on tmpfs or overlayfs"
        )
    try:
        said = os.read(context, _MESSAGE_MAX).decode("utf-8", "replace").strip()
    except OSError:
        said = ""
    return UnfitError(f"the kernel refuses the image: {said or error.strerror}")


def _call(number: int, *arguments: bytes | int | None) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        found = ctypes.get_errno()
        raise OSError(found, os.strerror(found))
    return result
