"""An image of a dataset: `shards/` as a mount shows it, and with `by_key` its links.

It is written from front to end, shard by shard, so it takes the memory of one shard. The blocks of the topmost
directories come first, as the number of the root has 16 bits, and are written last. The same catalogs make the same
bytes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.keys import Keys
from touchfs.core.errors import FormatError, UsageError
from touchfs.core.progress import Progress, unshown
from touchfs.format.erofs.directories import DirectoryEntries, EntryNames, build_directories
from touchfs.format.erofs.inodes import EXTENDED_SLOTS, INLINE_MAX, Owner, build_link, put_directories
from touchfs.format.erofs.layout import BLOCK, DIRECTORY, SLOT, SLOTS_PER_BLOCK, SYMBOLIC_LINK
from touchfs.format.erofs.subtree import build_subtree
from touchfs.format.erofs.superblock import Head, build_head, meta_block
from touchfs.images.owners import ImageOwners
from touchfs.images.plan import ImagePlan, PlannedShard
from touchfs.images.shard_rows import Copies, shard_rows
from touchfs.tree.inode import pack, unpack
from touchfs.tree.links.by_key import ByKey
from touchfs.tree.open_shards import OpenShards

# The number of the view in inodes of `by-key/`, as in a tree.
_BY_KEY = 3
# No entry has the number 0, which readers of directories take for a removed one.
_FIRST = 2


@dataclass(frozen=True, slots=True)
class Written:
    """What an image has: files, links, and bytes of the image itself."""

    files: int
    links: int
    size: int


@dataclass(slots=True)
class _Top:
    """A topmost directory: its inode number, that of the one above, its owner, and its entries with their types."""

    nid: int
    above: int
    owner: Owner
    entries: list[tuple[bytes, int, int]] = field(default_factory=list)


def write_image(
    plan: ImagePlan, owners: ImageOwners, file: BinaryIO, *, by_key: bool, progress: Progress = unshown
) -> Written:
    """Write an image into an empty file that can seek. `progress` is called with the shards that are in it and all.

    Raises FormatError for a damaged catalog, or if the image would be too large, UsageError if there are no keys, and
    as `Dataset.catalog`.
    """
    return _Image(plan, owners, file, by_key=by_key).write(progress)


class _Image:
    """An image that is being written into `file`."""

    def __init__(self, plan: ImagePlan, owners: ImageOwners, file: BinaryIO, *, by_key: bool) -> None:
        self._plan, self._owners, self._file = plan, owners, file
        dataset = plan.dataset
        if by_key and isinstance(dataset.keys, str):
            raise UsageError(f"there is no by-key/: {dataset.keys}", path=dataset.source)
        self._by_key = by_key
        shards = [dataset.shards[each.position] for each in plan.shards]
        latest = max(shard.mtime_ns for shard in dataset.shards)
        self._build_time = min(owners.others.at(shard.mtime_ns).mtime for shard in shards)
        splits = sorted({shard.directory.rstrip("/") for shard in shards} - {""})
        self._nid = _FIRST
        self._root = self._new_top(None, owners.root.at(latest))
        self._shards = self._new_top(self._root, owners.others.at(latest))
        self._splits = {each: self._new_top(self._shards, owners.others.at(latest)) for each in splits}
        self._tops = [self._root, self._shards, *self._splits.values()]
        self._root.entries.append((b"shards", self._shards.nid, DIRECTORY))
        self._shards.entries += [(os.fsencode(name), top.nid, DIRECTORY) for name, top in self._splits.items()]
        self._device_sizes = plan.device_sizes
        self._meta = meta_block(len(plan.devices) + 1)
        self._checksum = self._files = self._links = self._directories = 0
        # The rows that are in the image, by the position of their shard.
        self._included = dict[int, NDArray[np.int64]]()

    def _new_top(self, above: _Top | None, owner: Owner) -> _Top:
        nid, self._nid = self._nid, self._nid + EXTENDED_SLOTS
        return _Top(nid, nid if above is None else above.nid, owner)

    def write(self, progress: Progress) -> Written:
        if self._by_key:
            links = self._new_top(self._root, self._owners.keys.at(max(s.mtime_ns for s in self._plan.dataset.shards)))
            self._root.entries.append((b"by-key", links.nid, DIRECTORY))
            self._tops.append(links)
        top = -(-self._nid // SLOTS_PER_BLOCK)
        self._file.write(bytes((self._meta + top) * BLOCK))
        self._block = self._meta + top
        for done, shard in enumerate(self._plan.shards, 1):
            self._add_shard(shard)
            progress(done, len(self._plan.shards))
        if self._by_key:
            self._add_links(links)
        slots = np.zeros((top * SLOTS_PER_BLOCK, SLOT), np.uint8)
        for directory in self._tops:
            self._add_top(directory, slots)
        above = slots.tobytes()
        head = Head(
            devices=(*(-(-each.fingerprint.size // BLOCK) for each in self._plan.devices), self._block),
            root=self._root.nid,
            inodes=self._files + self._links + self._directories + len(self._tops),
            build_time=self._build_time,
            meta=self._meta,
            blocks=self._block,
            top=top,
            checksum=zlib.crc32(above, self._checksum),
        )
        self._file.seek(0)
        self._file.write(build_head(head) + above)
        return Written(self._files, self._links, head.size)

    def _add(self, data: bytes) -> None:
        self._file.write(data)
        self._checksum = zlib.crc32(data, self._checksum)
        self._block += len(data) // BLOCK

    @property
    def _next_nid(self) -> int:
        return (self._block - self._meta) * SLOTS_PER_BLOCK

    def _add_shard(self, planned: PlannedShard) -> None:
        dataset, position = self._plan.dataset, planned.position
        shard = dataset.shards[position]
        owner = self._owners.shards[position].at(shard.mtime_ns)
        catalog = dataset.catalog(position)
        found = shard_rows(catalog, planned, self._device_sizes, owner, self._block)
        self._plan.left_out.files += found.left_out
        above = self._splits[shard.directory.rstrip("/")] if shard.directory else self._shards
        self._add_copies(found.copies)
        try:
            for row in found.made.tolist():
                self._add_padded(catalog.tables["shards"].inline(row))
            nid = self._next_nid
            data = build_subtree(found.rows, owner, nid, self._block, above.nid, self._build_time)
        except FormatError as error:
            raise error.at(shard.path) from None
        above.entries.append((os.fsencode(shard.name), nid, DIRECTORY))
        self._add(data)
        count = int(np.count_nonzero(found.rows.is_file))
        self._files += count
        self._directories += len(found.numbers) - count
        if self._by_key:
            self._included[position] = found.numbers

    def _add_copies(self, copies: Copies) -> None:
        for number, offset, size in zip(*(each.tolist() for each in copies), strict=True):
            self._add_padded(self._plan.devices[number - 1].read(offset, size))

    def _add_padded(self, data: bytes) -> None:
        self._add(data + bytes(-len(data) % BLOCK))

    def _add_links(self, top: _Top) -> None:
        """Write the inodes of links. One is in one block with its target, or the target has blocks of its own."""
        data, first = bytearray(), self._next_nid
        for name, owner, target in self._found_links():
            if len(target) > INLINE_MAX:
                data += bytes(-len(data) % BLOCK)
                block = self._block + len(data) // BLOCK
                data += target + bytes(-len(target) % BLOCK)
            else:
                block, left = 0, -len(data) % BLOCK
                data += bytes(left if left < BLOCK - INLINE_MAX + len(target) else 0)
            nid = first + len(data) // SLOT
            data += build_link(owner, nid, target, block)
            data += bytes(-len(data) % SLOT)
            top.entries.append((name, nid, SYMBOLIC_LINK))
        self._links = len(top.entries)
        self._add(bytes(data) + bytes(-len(data) % BLOCK))

    def _found_links(self) -> Iterator[tuple[bytes, Owner, bytes]]:
        """The links of `by-key/` to files of the image: name, owner and target."""
        dataset = self._plan.dataset
        if isinstance(dataset.keys, Keys):
            # Ids of shards count from 1, as in a tree without a mount.
            links = ByKey(OpenShards(dataset, range(1, len(dataset.shards) + 1)), dataset.keys, _BY_KEY, listed=True)
            included = {position: frozenset(rows.tolist()) for position, rows in self._included.items()}
            for name, entry, _ in links.entries(pack(_BY_KEY, 0, 0), 0):
                _, shard_id, row = unpack(entry.inode)
                if row in included.get(shard_id - 1, ()):
                    yield name, self._owners.shards[shard_id - 1].at(entry.mtime_ns), links.link(entry.inode)

    def _add_top(self, top: _Top, slots: NDArray[np.uint8]) -> None:
        top.entries.sort()
        names, nids, types = zip(*top.entries, strict=True) if top.entries else ((), (), ())
        own, above = np.array([top.nid]), np.array([top.above])
        entries = DirectoryEntries(
            EntryNames.of(list(names)), np.array(nids, np.int64), np.array(types, np.uint8), np.array([len(names)])
        )
        built = build_directories(entries, own, above)
        links = np.array([2 + types.count(DIRECTORY)])
        put_directories(slots, top.owner, own, 0, self._block + built.first, built.blocks, links)
        self._add(built.data)
