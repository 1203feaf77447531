"""The rows of a shard's catalog that an image can have, as arrays: no object is made for a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import Catalog, FileKind
from touchfs.catalog.columns import as_array
from touchfs.catalog.table import DIRECTORY
from touchfs.core.errors import FormatError
from touchfs.form.plain import BYTES, INLINE, SPARSE
from touchfs.format.erofs.chunks import copied_sizes
from touchfs.format.erofs.directories import EntryNames
from touchfs.format.erofs.inodes import FileInodes, Owner
from touchfs.format.erofs.layout import BLOCK, BLOCK_BITS, BLOCKS_MAX, FILE_MAX
from touchfs.format.erofs.subtree import SubtreeRows
from touchfs.images.plan import PlannedShard

Numbers = NDArray[np.int64]


class Copies(NamedTuple):
    """Of devices, by number, whose last bytes an image has: where these begin in the device, and how many they are.
    Each copy begins with a block.
    """

    devices: Numbers
    offsets: Numbers
    sizes: Numbers


class ShardRows(NamedTuple):
    """The rows for an image, their numbers in the catalog, what is copied, the rows of the catalog whose bytes are in
    the image after that, each from a block on, and how many files are left out, by the reason.
    """

    rows: SubtreeRows
    numbers: Numbers
    copies: Copies
    made: Numbers
    left_out: Counter[str]


def shard_rows(
    catalog: Catalog, planned: PlannedShard, device_sizes: Numbers, owner: Owner, copies_from: int
) -> ShardRows:
    """The rows of `shards/` whose bytes are those of a device as they are, or in the catalog. `device_sizes` are in
    bytes, by the numbers of devices; copies begin with the block `copies_from` of the image. Raises FormatError for a
    damaged catalog.
    """
    table = catalog.tables["shards"]
    kind, parent = as_array(table.kind).astype(np.int64), as_array(table.parent).astype(np.int64)
    if len(kind) == 0 or int(kind.max()) > len(catalog.kinds) or (parent[1:] >= np.arange(1, len(parent))).any():
        raise FormatError("its catalog is damaged: index with --force", path=catalog.path)
    own = len(device_sizes)
    device_of = np.array([0, *(_device(each, planned.devices, own) for each in catalog.kinds)])
    device = device_of[kind]
    is_made = device == own
    made = np.flatnonzero(is_made)
    offset, length = as_array(table.offset).astype(np.int64), as_array(table.length).astype(np.int64)
    is_file, is_whole = kind != DIRECTORY, np.zeros(len(kind), bool)
    whole = planned.whole
    device[whole.rows], is_whole[whole.rows] = whole.devices, True
    offset[whole.rows], length[whole.rows] = 0, device_sizes[whole.devices]
    offset[made], length[made] = 0, table.inline_sizes()[made]
    is_stored, room = device > 0, np.append(device_sizes, 0)[device]
    padded = length + -length % BLOCK
    is_aligned = (offset % BLOCK == 0) | (length == 0)
    # Not offset + padded, which may overflow in a damaged catalog.
    is_inside = (offset >= 0) & (length >= 0) & (padded <= room) & (offset <= room - padded) | is_whole | is_made
    fits = (offset >> BLOCK_BITS < BLOCKS_MAX) & (length <= FILE_MAX)
    left_out = Counter[str]()
    for number, count in enumerate(np.bincount(kind[is_file & ~is_stored]).tolist()):
        if count:
            left_out[_why_not(catalog.kinds[number - 1])] += count
    left_out["that begin in the middle of a block"] += int(np.count_nonzero(is_stored & ~is_aligned))
    left_out["at the end of a tar that is not padded"] += int(np.count_nonzero(is_stored & is_aligned & ~is_inside))
    left_out["too large, or too far behind"] += int(np.count_nonzero(is_stored & is_aligned & is_inside & ~fits))
    chosen = is_stored & is_aligned & is_inside & fits
    included = chosen | ~is_file
    data, starts = table.names
    numbers = np.flatnonzero(included)
    number_in_image = np.cumsum(included) - 1
    copies, blocks, made_from = _copies(device_sizes, np.unique(device[chosen & is_whole]), copies_from)
    copied = np.zeros(len(device), np.int64)
    is_copied = is_whole & np.isin(device, copies.devices)
    copied[is_copied] = blocks[np.searchsorted(copies.devices, device[is_copied])]
    made_blocks = padded[made] >> BLOCK_BITS
    offset[made] = made_from + np.cumsum(made_blocks) - made_blocks << BLOCK_BITS
    first = np.where(length, offset >> BLOCK_BITS, 0)[chosen]
    files = FileInodes(owner, length[chosen], device[chosen], first, copied[chosen], own)
    names = EntryNames(data, starts[:-1], np.diff(starts)).take(numbers)
    rows = SubtreeRows(names, number_in_image[parent[numbers]], chosen[numbers], files)
    return ShardRows(rows, numbers, copies, made, left_out)


def _copies(device_sizes: Numbers, whole: Numbers, first: int) -> tuple[Copies, Numbers, int]:
    """The ends of whole files to copy, the block of the image in which each copy begins, and the first block after all
    copies.
    """
    copied = copied_sizes(device_sizes[whole])
    devices, copied = whole[copied > 0], copied[copied > 0]
    blocks = -(-copied // BLOCK)
    begins = first + np.cumsum(blocks) - blocks
    return Copies(devices, device_sizes[devices] - copied, copied), begins, first + int(blocks.sum())


def _device(kind: FileKind, devices: Mapping[str, int], own: int) -> int:
    if kind.form == str(INLINE):
        return own
    return devices.get(kind.source, 0) if kind.form == str(BYTES) else 0


def _why_not(kind: FileKind) -> str:
    if kind.form == str(SPARSE):
        return "that are sparse"
    return (
        "that are neither members of tars nor recordings"
        if kind.form == str(BYTES)
        else f"made of others ({kind.form})"
    )
