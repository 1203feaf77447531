"""The head of an image: its superblock with a CRC32C, as the kernel compares it, and the table of devices.

The 16 bytes for a uuid are `touchfs`, the version of the format, and a CRC-32 (zlib's) of all blocks that follow the
head. The first `top` of them come last in that, as a writer knows them last. So a superblock with a right checksum says
whether an image is one of ours, and is whole.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.format.erofs.layout import (
    BLOCK,
    BLOCK_BITS,
    BLOCKS_MAX,
    COMPAT_CHECKSUM,
    COMPAT_MTIME,
    DEVICE_SLOT,
    DEVICES_MAX,
    INCOMPAT_CHUNKED_FILE,
    INCOMPAT_DEVICE_TABLE,
    MAGIC,
    SUPERBLOCK,
    SUPERBLOCK_OFFSET,
)

VERSION = 2
# The magic of ours and the version, `top`, and the CRC-32
_UUID = struct.Struct("<8sII")
_OURS = b"touchfs" + bytes([VERSION])
_VOLUME = b"touchfs"
# The block of the superblock has nothing else in it, so that its checksum is of no device.
_DEVICES_OFFSET = SUPERBLOCK_OFFSET + BLOCK
# The table of CRC32C, of which the polynomial is here with its bits reversed.
_POLYNOMIAL = 0x82F63B78


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of an image says. `devices` is the number of blocks of each device, `meta` the block where nids
    begin, `blocks` those of the image, and `build_time` the time in seconds from which those of compact inodes count.
    `checksum` is the CRC-32 of the blocks that follow the head, the first `top` of them last.
    """

    devices: tuple[int, ...]
    root: int
    inodes: int
    build_time: int
    meta: int
    blocks: int
    top: int
    checksum: int

    @property
    def size(self) -> int:
        return self.blocks * BLOCK


def meta_block(devices: int) -> int:
    """The first block behind the head of an image with so many devices. Raises FormatError if these are too many."""
    if devices > DEVICES_MAX:
        raise FormatError(f"{devices:,} files are too many for an image, the most are {DEVICES_MAX:,}", offset=0)
    return -(-(_DEVICES_OFFSET + devices * DEVICE_SLOT.itemsize) // BLOCK)


def build_head(head: Head) -> bytes:
    """The blocks before `head.meta`. Raises FormatError if the image is too large."""
    if head.blocks > BLOCKS_MAX:
        raise FormatError(f"an image of {head.blocks:,} blocks is too large", offset=0)
    block = np.zeros(1, SUPERBLOCK)
    block["magic"] = MAGIC
    block["feature_compat"] = COMPAT_CHECKSUM | COMPAT_MTIME
    block["blkszbits"] = BLOCK_BITS
    block["root_nid"] = head.root
    block["inos"] = head.inodes
    block["build_time"] = head.build_time % 2**64
    block["blocks"] = head.blocks
    block["meta_blkaddr"] = head.meta
    block["uuid"] = np.void(_UUID.pack(_OURS, head.top, head.checksum))
    block["volume_name"] = _VOLUME
    block["feature_incompat"] = INCOMPAT_CHUNKED_FILE | (INCOMPAT_DEVICE_TABLE if head.devices else 0)
    block["extra_devices"] = len(head.devices)
    block["devt_slotoff"] = _DEVICES_OFFSET // DEVICE_SLOT.itemsize
    block["checksum"] = _checksum(block.tobytes())
    slots = np.zeros(len(head.devices), DEVICE_SLOT)
    slots["blocks"] = np.minimum(head.devices, BLOCKS_MAX) if head.devices else 0
    before = bytes(SUPERBLOCK_OFFSET) + block.tobytes().ljust(BLOCK, b"\0") + slots.tobytes()
    return before.ljust(head.meta * BLOCK, b"\0")


def parse_head(data: bytes) -> Head:
    """Parse the head of an image of ours; `data` has it at least. Raises FormatError for any other one, and damage."""
    if len(data) < _DEVICES_OFFSET:
        raise FormatError("is too short for an image", offset=0)
    block = data[SUPERBLOCK_OFFSET:_DEVICES_OFFSET]
    (found,) = np.frombuffer(block, SUPERBLOCK, 1)
    if found["magic"] != MAGIC:
        raise FormatError("is not an EROFS image", offset=SUPERBLOCK_OFFSET)
    at = SUPERBLOCK.fields["checksum"][1]  # type: ignore[index]
    if found["checksum"] != _checksum(block[:at] + bytes(4) + block[at + 4 :]):
        raise FormatError("the checksum of its superblock is wrong", offset=SUPERBLOCK_OFFSET)
    ours, top, checksum = _UUID.unpack(found["uuid"].tobytes())
    if ours != _OURS:
        raise FormatError("is not an image of this version of touchfs", offset=SUPERBLOCK_OFFSET)
    count, meta = int(found["extra_devices"]), int(found["meta_blkaddr"])
    if meta != meta_block(count) or len(data) < meta * BLOCK:
        raise FormatError("its table of devices is cut", offset=_DEVICES_OFFSET)
    blocks = np.frombuffer(data, DEVICE_SLOT, count, _DEVICES_OFFSET)["blocks"]
    (build_time,) = struct.unpack("<q", found["build_time"].tobytes())
    root, inodes, size = (int(found[name]) for name in ("root_nid", "inos", "blocks"))
    return Head(tuple(blocks.tolist()), root, inodes, build_time, meta, size, top, checksum)


def parse_image(data: memoryview) -> Head:
    """Parse the head of a whole image of ours, and compare all checksums. Raises FormatError as `parse_head`."""
    head = parse_head(bytes(data[: meta_block(DEVICES_MAX) * BLOCK]))
    top, end = head.meta * BLOCK, (head.meta + head.top) * BLOCK
    if len(data) != head.size or not top <= end <= len(data):
        raise FormatError(f"has {len(data):,} bytes, and not {head.size:,}", offset=0)
    if zlib.crc32(data[top:end], zlib.crc32(data[end:])) != head.checksum:
        raise FormatError("its checksum is wrong", offset=top)
    return head


def _checksum(block: bytes) -> int:
    """The CRC32C of a superblock up to the end of its block, as the kernel has it: without the last inversion."""
    checksum = 2**32 - 1
    for byte in block.ljust(BLOCK, b"\0"):
        checksum = checksum >> 8 ^ _TABLE[(checksum ^ byte) & 0xFF]
    return checksum


def _row(number: int) -> int:
    for _ in range(8):
        number = number >> 1 ^ (_POLYNOMIAL if number & 1 else 0)
    return number


_TABLE: Sequence[int] = tuple(map(_row, range(256)))
