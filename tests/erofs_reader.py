"""A second reader of EROFS images, which knows of ours only what linux/fs/erofs/erofs_fs.h says."""

import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

SUPERBLOCK = struct.Struct("<IIIBBHQQIIII16s16sIHHHBBIQB23s")
SLOT = struct.Struct("<64sII56s")
COMPACT = struct.Struct("<HHHHIIIIHHI")
EXTENDED = struct.Struct("<HHHHQIIIIqII16s")
CHUNK = struct.Struct("<HHI")
DIRENT = struct.Struct("<QHBB")
TYPES = {1: stat.S_IFREG, 2: stat.S_IFDIR, 7: stat.S_IFLNK}


class Extent(NamedTuple):
    """Where the bytes of a file are. Device 0 is the image."""

    device: int
    offset: int
    length: int


@dataclass(frozen=True)
class Inode:
    nid: int
    mode: int
    links: int
    size: int
    user: int
    group: int
    mtime: int
    is_extended: bool
    extents: tuple[Extent, ...]

    @property
    def extent(self) -> Extent:
        """The only one."""
        (only,) = self.extents
        return only


class Image:
    """An image. Names are asked for as the kernel asks: by a binary search of blocks, and of entries in a block."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        found = SUPERBLOCK.unpack_from(data, 1024)
        (self.magic, self.checksum, self.compat, bits, _, self.root, self.inodes, build_time, _, self.blocks) = found[
            :10
        ]
        (self.meta, _, self.uuid, self.volume, self.incompat, _, self.devices, self.slots_at, directory_bits) = found[
            10:19
        ]
        self.build_time = build_time - (build_time >> 63 << 64)
        assert (self.magic, directory_bits) == (0xE0F5E1E2, 0)
        self.block = 1 << bits
        self.tags = [SLOT.unpack_from(data, (self.slots_at + i) * SLOT.size) for i in range(self.devices)]

    def inode(self, nid: int) -> Inode:
        at = self.meta * self.block + nid * 32
        (format_,) = struct.unpack_from("<H", self.data, at)
        is_extended, layout = format_ & 1, format_ >> 1
        if is_extended:
            _, xattrs, mode, _, size, u, _, user, group, mtime, _, links, _ = EXTENDED.unpack_from(self.data, at)
            end = at + EXTENDED.size
        else:
            _, xattrs, mode, links, size, offset, u, _, user, group, _ = COMPACT.unpack_from(self.data, at)
            mtime, end = self.build_time + offset, at + COMPACT.size
        assert xattrs == 0
        if layout == 4:
            assert u >> 5 == 1, "chunks have indexes"
            chunk = self.block << (u & 0x1F)
            extents = []
            for begin in range(0, max(size, 1), chunk):
                _, device, block = CHUNK.unpack_from(self.data, end + begin // chunk * CHUNK.size)
                extents.append(Extent(device, block * self.block, min(chunk, size - begin)))
        else:
            assert layout in (0, 2)
            extents = [Extent(0, u * self.block if layout == 0 else end, size)]
            assert layout == 0 or end // self.block == (end + size - 1) // self.block == at // self.block
        return Inode(nid, mode, links, size, user, group, mtime, bool(is_extended), tuple(extents))

    def bytes_of(self, inode: Inode, devices: Mapping[int, bytes] = MappingProxyType({})) -> bytes:
        """What a file, a link or a directory holds. `devices` are by their numbers."""
        files = {0: self.data, **devices}
        pieces = [files[device][offset : offset + length] for device, offset, length in inode.extents]
        assert all(len(piece) == extent.length for piece, extent in zip(pieces, inode.extents, strict=True))
        assert all(extent.offset // self.block < self._blocks(extent.device) for extent in inode.extents if inode.size)
        return b"".join(pieces)

    def _blocks(self, device: int) -> int:
        return self.tags[device - 1][1] if device else self.blocks

    def _block_entries(self, block: bytes) -> list[tuple[bytes, int, int]]:
        count = DIRENT.unpack_from(block)[1] // DIRENT.size
        entries = [DIRENT.unpack_from(block, i * DIRENT.size) for i in range(count)]
        ends = [entry[1] for entry in entries[1:]] + [len(block)]
        names = [block[entry[1] : end] for entry, end in zip(entries, ends, strict=True)]
        names[-1] = names[-1].partition(b"\0")[0]
        return [(name, entry[0], entry[2]) for name, entry in zip(names, entries, strict=True)]

    def entries(self, directory: Inode) -> list[tuple[bytes, int, int]]:
        """Name, nid and type of each entry, in the order of the image."""
        assert stat.S_ISDIR(directory.mode)
        data = self.bytes_of(directory)
        blocks = [data[i : i + self.block] for i in range(0, len(data), self.block)]
        return [entry for block in blocks for entry in self._block_entries(block)]

    def tree(self) -> dict[bytes, Inode]:
        """All inodes by their paths. Each directory is in order, without twins, and knows where it is."""
        found = {b"": self.inode(self.root)}
        waiting = [(b"", self.root)]
        while waiting:
            path, above = waiting.pop()
            own = found[path]
            entries = self.entries(own)
            names = [name for name, _, _ in entries]
            assert names == sorted(set(names)) and {b".", b".."} <= set(names)
            assert own.links == sum(type_ == 2 for _, _, type_ in entries)
            for name, nid, type_ in entries:
                if name in (b".", b".."):
                    assert nid == (own.nid if name == b"." else above)
                    continue
                inode = found[path + b"/" + name] = self.inode(nid)
                assert stat.S_IFMT(inode.mode) == TYPES[type_]
                if type_ == 2:
                    waiting.append((path + b"/" + name, own.nid))
        return found
