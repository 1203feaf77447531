"""Mounts an EROFS image whose devices are files, by fsopen, fsconfig and fsmount.

mount(2) takes a page of options, which the paths of 300 tars fill. Here each device is an option of its own. The kernel
opens the image and the devices by `/proc/self/fd/N`: what we have opened and checked, wherever its path leads by now.
All devices are always given, so the kernel never looks for one that the image names.
"""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from touchfs.core.errors import MountError, map_os_errors
from touchfs.format.erofs.directories import EntryNames
from touchfs.format.erofs.inodes import FileInodes, Owner
from touchfs.format.erofs.layout import BLOCK, SLOTS_PER_BLOCK
from touchfs.format.erofs.subtree import SubtreeRows, build_subtree
from touchfs.format.erofs.superblock import Head, build_head, meta_block
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


def check_kernel(place: str) -> None:
    """Raise UnfitError unless the kernel can mount images that are in the directory `place`, and fails to read what a
    file does not have. Some kernels show zeros instead.
    """
    if os.geteuid() != 0:
        raise UnfitError("only root can have the kernel mount an image", exit_status=EXIT_NOT_PERMITTED)
    if _panics_at_warnings():
        raise UnfitError("this kernel panics at warnings (kernel.panic_on_warn), and ext4 may write one for an image")
    size = 8 * BLOCK
    with (
        map_os_errors(place, "no image can be tried"),
        tempfile.TemporaryFile(dir=place) as image,
        tempfile.TemporaryFile(dir=place) as device,
    ):
        image.write(_image_of_a_file(size))
        device.write(bytes(BLOCK))
        image.flush()
        device.flush()
        with made(image.fileno(), [device.fileno()]) as mounted:
            file = os.open("file", os.O_RDONLY | os.O_CLOEXEC, dir_fd=mounted)
            try:
                os.pread(file, BLOCK, size - BLOCK)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
            else:
                raise UnfitError("this kernel shows zeros where a tar was cut short, and no error")
            finally:
                os.close(file)


def _panics_at_warnings() -> bool:
    try:
        with open("/proc/sys/kernel/panic_on_warn", encoding="ascii") as file:
            return file.read().strip() != "0"
    except OSError:
        return False


def _image_of_a_file(size: int) -> bytes:
    """An image of one file of a device, which it begins with."""
    owner = Owner(0, 0, 0o400, 0o700, 0)
    names, parents = EntryNames.of([b"", b"file"]), np.array([0, 0])
    inode = FileInodes(owner, np.array([size]), np.array([1]), np.array([0]))
    first, meta = SLOTS_PER_BLOCK, meta_block(1)
    body = build_subtree(SubtreeRows(names, parents, np.array([False, True]), inode), owner, first, meta + 1, first, 0)
    blocks, top = meta + 1 + len(body) // BLOCK, bytes(BLOCK)
    head = Head((size // BLOCK,), first, 2, 0, meta, blocks, 1, zlib.crc32(top, zlib.crc32(body)))
    return build_head(head) + top + body


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
    """A system call. Raises OSError."""
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        found = ctypes.get_errno()
        raise OSError(found, os.strerror(found))
    return result
