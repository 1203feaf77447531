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
from touchfs.format.erofs.directories import EntryNames
from touchfs.format.erofs.inodes import FileInodes, Owner
from touchfs.format.erofs.layout import BLOCK, BLOCK_BITS, BLOCKS_MAX, FILE_MAX
from touchfs.format.erofs.subtree import SubtreeRows

Numbers = NDArray[np.int64]


class ShardRows(NamedTuple):
    """The rows for an image, their numbers in the catalog, and how many files are left out, by the reason."""

    rows: SubtreeRows
    numbers: Numbers
    left_out: Counter[str]


def shard_rows(catalog: Catalog, devices: Mapping[str, int], sizes: Mapping[int, int], owner: Owner) -> ShardRows:
    """The rows of `shards/` whose bytes are those of a device as they are. `devices` are by the names of files, `sizes`
    by the numbers of devices, in bytes. Raises FormatError for a damaged catalog.
    """
    table = catalog.tables["shards"]
    kind, parent = as_array(table.kind).astype(np.int64), as_array(table.parent).astype(np.int64)
    if len(kind) == 0 or int(kind.max()) > len(catalog.kinds) or (parent[1:] >= np.arange(1, len(parent))).any():
        raise FormatError("its catalog is damaged: index with --force", path=catalog.path)
    device_of = np.array([0, *(_device(each, devices) for each in catalog.kinds)])
    device = device_of[kind]
    size_of = np.zeros(int(device.max()) + 1, np.int64)
    for number in set(device.tolist()) - {0}:
        size_of[number] = sizes[number]
    offset, length = as_array(table.offset).astype(np.int64), as_array(table.length).astype(np.int64)
    is_file, is_stored = kind != DIRECTORY, device > 0
    padded = length + -length % BLOCK
    is_aligned = (offset % BLOCK == 0) | (length == 0)
    # Not offset + padded, which may overflow in a damaged catalog.
    is_inside = (offset >= 0) & (length >= 0) & (padded <= size_of[device]) & (offset <= size_of[device] - padded)
    fits = (offset >> BLOCK_BITS < BLOCKS_MAX) & (length <= FILE_MAX)
    left_out = Counter[str]()
    for number, count in enumerate(np.bincount(kind[is_file & ~is_stored], minlength=len(device_of)).tolist()):
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
    files = FileInodes(owner, length[chosen], device[chosen], np.where(length, offset >> BLOCK_BITS, 0)[chosen])
    names = EntryNames(data, starts[:-1], np.diff(starts)).take(numbers)
    rows = SubtreeRows(names, number_in_image[parent[numbers]], chosen[numbers], files)
    return ShardRows(rows, numbers, left_out)


def _device(kind: FileKind, devices: Mapping[str, int]) -> int:
    return devices.get(kind.source, 0) if kind.form == str(BYTES) else 0


def _why_not(kind: FileKind) -> str:
    if kind.form == str(INLINE):
        return "of text made of others"
    if kind.form == str(SPARSE):
        return "that are sparse"
    return "that are not members of tars" if kind.form == str(BYTES) else f"made of others ({kind.form})"
