"""Where the tokens of a shard are: the ends of its documents, as one sum over the lengths in its catalog.

The tokens are those of all sequences of a Megatron-LM shard that are shown as arrays, or of one modality of a TouchNet
shard: `texttoken`, else the first one by name with integers that are no audio. Sequences are in stored order. Damaged
ones and images are left out, as if they were not there, and so are those without tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import as_array, take
from touchfs.catalog.table import Table
from touchfs.core.errors import FormatError
from touchfs.dataset.open_shard import OpenShard, StoredBytes
from touchfs.dataset.samples import CATALOG_DAMAGED
from touchfs.form.arrays import Npy
from touchfs.format.idx import AUDIO_NAMES, METAINFO_NAMES
from touchfs.registry.containers import MEGATRON

_TEXT = "texttoken"
_INTEGERS = "iu"
_OTHERS = AUDIO_NAMES | METAINFO_NAMES


@dataclass(frozen=True, slots=True, eq=False)
class TokenIndex:
    """The tokens of a shard, of kind number `kind` in its catalog. It takes 12 bytes a document.

    `ends` has the number of tokens up to and including each document, and `rows` the row of its first file. Runs are
    documents that are end to end in the file: the first token of each, and its offset in bytes.
    """

    kind: int
    field: str
    dtype: np.dtype[Any]
    ends: NDArray[np.int64]
    rows: NDArray[np.uint32]
    runs: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def total(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Where the tokens `[start, end)` are: offset and size in bytes of each piece. There is at least one token."""
        runs, width, pieces = self.runs.data, self.dtype.itemsize, []
        run = bisect_right(runs, start) - 1
        while start < end:
            last = min(end, runs[run + 1]) if run + 1 < len(runs) else end
            offset = self.offsets[run].item() + (start - runs[run]) * width
            pieces.append((offset, (last - start) * width))
            start, run = last, run + 1
        return pieces

    def documents(self, start: int, end: int) -> range:
        """The documents that have any of the tokens `[start, end)`."""
        ends: memoryview[int] = self.ends.data
        return range(bisect_right(ends, start), bisect_right(ends, end - 1) + 1)


def token_index(shard: OpenShard) -> TokenIndex | None:
    """Find the tokens of a shard; None if it has no field of tokens. Raises FormatError if its catalog is damaged."""
    found = {
        number: (kind.field, np.dtype(form.dtype))
        for number, (kind, form) in enumerate(zip(shard.kinds, shard.forms, strict=True))
        if isinstance(form, Npy) and np.dtype(form.dtype).kind in _INTEGERS and kind.field not in _OTHERS
    }
    if not shard.shard.may_have_tokens or not found:
        return None
    chosen = min((field for field, _ in found.values()), key=lambda field: (field != _TEXT, field))
    # Notes on files make kinds of their own.
    kinds = [number for number, (field, _) in found.items() if field == chosen]
    table = shard.tables["shards"]
    try:
        rows = _rows(table, kinds)
        offsets, sizes = take(table.offset, rows), take(table.length, rows)
        parents = take(table.parent, rows)
    except IndexError as error:
        raise FormatError(CATALOG_DAMAGED, path=shard.shard.path) from error
    dtype = found[kinds[0]][1]
    _check(shard, kinds[0], offsets, sizes, dtype.itemsize)
    ends = np.cumsum(sizes // dtype.itemsize)
    is_first = np.ones(len(rows), bool)
    is_first[1:] = offsets[1:] != offsets[:-1] + sizes[:-1]
    runs = (ends - sizes // dtype.itemsize)[is_first]
    begins = np.ones(len(rows), bool)
    if shard.shard.container is MEGATRON:  # there, the sequences of a document are in its directory
        begins[1:] = (parents[1:] != parents[:-1]) | (parents[1:] == 0)
    closes = np.append(begins[1:], True)[: len(rows)]
    return TokenIndex(kinds[0], chosen, dtype, ends[closes], rows[begins].astype(np.uint32), runs, offsets[is_first])


def _rows(table: Table, kinds: list[int]) -> NDArray[np.int64]:
    """The rows of files of some kinds that have any bytes, in the order of samples."""
    rows = np.flatnonzero(np.isin(as_array(table.kind), np.array(kinds) + 1))
    rows = rows[take(table.length, rows) != 0]
    ordered: NDArray[np.int64] = rows[np.argsort(take(table.ordinal, rows), kind="stable")]
    return ordered


def _check(shard: OpenShard, kind: int, offsets: NDArray[np.int64], sizes: NDArray[np.int64], width: int) -> None:
    """Raise FormatError unless all of these ranges are in the file, and made of whole tokens."""
    if not len(sizes):
        return
    if (sizes % width).any():
        raise FormatError(CATALOG_DAMAGED, path=shard.shard.path)
    # The sum may overflow in a damaged catalog, so the largest offset and length are checked, too.
    worst = {offsets.argmin(), offsets.argmax(), sizes.argmin(), sizes.argmax(), (offsets + sizes).argmax()}
    for place in worst:
        shard.extent(StoredBytes(kind, int(offsets[place]), int(sizes[place]), b""))
