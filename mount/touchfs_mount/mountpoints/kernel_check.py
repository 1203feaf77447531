"""Whether the kernel can mount an image, which is tried with one of a single file."""

from __future__ import annotations

import errno
import os
import tempfile
import zlib

import numpy as np

from touchfs.core.errors import map_os_errors
from touchfs.format.erofs.directories import EntryNames
from touchfs.format.erofs.inodes import FileInodes, Owner
from touchfs.format.erofs.layout import BLOCK, SLOTS_PER_BLOCK
from touchfs.format.erofs.subtree import SubtreeRows, build_subtree
from touchfs.format.erofs.superblock import Head, build_head, meta_block
from touchfs_mount.mountpoints.erofs import UnfitError, made
from touchfs_mount.mountpoints.mountpoint import EXIT_NOT_PERMITTED


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
    inode = FileInodes(owner, np.array([size]), np.array([1]), np.array([0]), np.array([0]))
    first, meta = SLOTS_PER_BLOCK, meta_block(1)
    body = build_subtree(SubtreeRows(names, parents, np.array([False, True]), inode), owner, first, meta + 1, first, 0)
    blocks, top = meta + 1 + len(body) // BLOCK, bytes(BLOCK)
    head = Head((size // BLOCK,), first, 2, 0, meta, blocks, 1, zlib.crc32(top, zlib.crc32(body)))
    return build_head(head) + top + body
