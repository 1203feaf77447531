"""The structures of an EROFS image, with the names of linux/fs/erofs/erofs_fs.h, and what their numbers mean.

Blocks have 512 bytes, as those of a tar. So a member of a tar begins with a block, and one chunk is enough for it. Of a
whole file the last block may have fewer bytes than 512, which the kernel does not read from a file that it has for a
device. So its last chunk is a copy, in blocks of the image.

    0        1,024 zeros, the superblock, the table of devices: from block 3 on
    meta     inodes, copies and blocks of directories, in any order; an inode's number (nid) counts units of 32 bytes
             from here
"""

from __future__ import annotations

import numpy as np

BLOCK_BITS = 9
BLOCK = 1 << BLOCK_BITS
SUPERBLOCK_OFFSET = 1024
MAGIC = 0xE0F5E1E2
# A nid counts these.
SLOT = 32
SLOTS_PER_BLOCK = BLOCK // SLOT
NAME_MAX = 255
DEVICES_MAX = 2**16 - 1
# Blocks of a device or an image.
BLOCKS_MAX = 2**32 - 1
# Blocks of a chunk have at most so many bits, so no file is larger.
CHUNK_BITS_MAX = 31
FILE_MAX = 1 << CHUNK_BITS_MAX + BLOCK_BITS
# The largest values of compact inodes: sizes and offsets of times in 32 bits, owners in 16 bits.
COMPACT_MAX = 2**32 - 1
COMPACT_OWNER_MAX = 2**16 - 1

COMPAT_CHECKSUM, COMPAT_MTIME = 0x1, 0x2
INCOMPAT_CHUNKED_FILE, INCOMPAT_DEVICE_TABLE = 0x4, 0x8

# The lowest bit of i_format is 1 for an extended inode; how the data lie is in the next three.
FLAT_PLAIN, FLAT_INLINE, CHUNK_BASED = 0, 2, 4
EXTENDED = 1
# In i_u of a chunk-based file, beside the bits of the blocks of a chunk: chunks have indexes with devices.
CHUNK_INDEXES = 0x20

REGULAR_FILE, DIRECTORY, SYMBOLIC_LINK = 1, 2, 7

SUPERBLOCK = np.dtype(
    [
        ("magic", "<u4"),
        ("checksum", "<u4"),
        ("feature_compat", "<u4"),
        ("blkszbits", "u1"),
        ("sb_extslots", "u1"),
        ("root_nid", "<u2"),
        ("inos", "<u8"),
        ("build_time", "<u8"),
        ("build_time_nsec", "<u4"),
        ("blocks", "<u4"),
        ("meta_blkaddr", "<u4"),
        ("xattr_blkaddr", "<u4"),
        ("uuid", "V16"),
        ("volume_name", "S16"),
        ("feature_incompat", "<u4"),
        ("available_compr_algs", "<u2"),
        ("extra_devices", "<u2"),
        ("devt_slotoff", "<u2"),
        ("dirblkbits", "u1"),
        ("xattr_prefix_count", "u1"),
        ("xattr_prefix_start", "<u4"),
        ("packed_nid", "<u8"),
        ("xattr_filter_reserved", "u1"),
        ("reserved2", "V23"),
    ]
)
DEVICE_SLOT = np.dtype([("tag", "V64"), ("blocks", "<u4"), ("mapped_blkaddr", "<u4"), ("reserved", "V56")])
INODE_COMPACT = np.dtype(
    [
        ("i_format", "<u2"),
        ("i_xattr_icount", "<u2"),
        ("i_mode", "<u2"),
        ("i_nlink", "<u2"),
        ("i_size", "<u4"),
        ("i_mtime", "<u4"),  # seconds after build_time, since Linux 6.15; before, it is reserved
        ("i_u", "<u4"),
        ("i_ino", "<u4"),
        ("i_uid", "<u2"),
        ("i_gid", "<u2"),
        ("i_reserved2", "<u4"),
    ]
)
INODE_EXTENDED = np.dtype(
    [
        ("i_format", "<u2"),
        ("i_xattr_icount", "<u2"),
        ("i_mode", "<u2"),
        ("i_reserved", "<u2"),
        ("i_size", "<u8"),
        ("i_u", "<u4"),
        ("i_ino", "<u4"),
        ("i_uid", "<u4"),
        ("i_gid", "<u4"),
        ("i_mtime", "<i8"),
        ("i_mtime_nsec", "<u4"),
        ("i_nlink", "<u4"),
        ("i_reserved2", "V16"),
    ]
)
CHUNK_INDEX = np.dtype([("advise", "<u2"), ("device_id", "<u2"), ("blkaddr", "<u4")])
DIRENT = np.dtype([("nid", "<u8"), ("nameoff", "<u2"), ("file_type", "u1"), ("reserved", "u1")])
