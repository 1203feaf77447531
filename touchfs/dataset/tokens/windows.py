"""The windows of a shard's tokens, and the files of each:

    000123.npy              the tokens, in their stored dtype
    000123.cu_seqlens.npy   where the documents in it begin and end, int32: 0, each end, the number of its tokens
    000123.json             the same with the documents' keys

Attention that must not cross documents takes these bounds as they are (`cu_seqlens` in FlashAttention). A document that
began before the window, or goes on after it, is cut off there.
"""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from touchfs.core.extent import Content, Extent, Memory, Rope
from touchfs.core.names import TOKEN_BOUNDS
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.tokens.index import TokenIndex
from touchfs.form.arrays import Npy
from touchfs.format import npy
from touchfs.registry.containers import MEGATRON
from touchfs.source.store import StoredFile
from touchfs.view.token_plan import TokenPlan

ARRAY, BOUNDS, JSON = "npy", TOKEN_BOUNDS, "json"
EXTENSIONS = (ARRAY, BOUNDS, JSON)
DIGITS = 6
_BOUNDS_TYPE = np.dtype("<i4")


class TokenWindows:
    """The windows of the tokens of an open shard, by number.

    Methods raise IndexError for a window that there is not.
    """

    __slots__ = ("_count", "_dtype", "_first", "_length", "_source", "_step", "_total", "index", "plan", "shard")

    def __init__(self, shard: OpenShard, index: TokenIndex, plan: TokenPlan) -> None:
        self.shard = shard
        self.index = index
        self.plan = plan
        self._length, self._step, self._total = plan.length, plan.step, index.total
        self._count = plan.count(self._total)
        self._dtype = index.dtype
        # Where all tokens are end to end, the first one is here.
        self._first = index.offsets[0].item() if len(index.offsets) == 1 else None
        self._source = cast(StoredFile, shard.source(index.kind))  # arrays are in a file of the shard

    def __len__(self) -> int:
        return self._count

    def span(self, window: int) -> tuple[int, int]:
        """The first token of a window, and the one after its last."""
        if not 0 <= window < self._count:
            raise IndexError(f"window {window} of {self._count}")
        start = window * self._step
        return start, min(start + self._length, self._total)

    def content(self, window: int, extension: str) -> Content:
        """The content of a file of a window."""
        if extension == ARRAY:
            return self._tokens(*self.span(window))
        if extension == BOUNDS:
            bounds = self.bounds(window)
            return Memory(npy.build_header(_BOUNDS_TYPE, bounds.shape) + bounds.tobytes())
        return Memory(self._described(window))

    def size(self, window: int, extension: str) -> int | None:
        """The size in bytes of a file of a window; None for JSON, which has to be made to know it."""
        if extension == JSON:
            return None
        start, end = self.span(window)
        count, dtype = end - start, self.index.dtype
        if extension == BOUNDS:
            count, dtype = len(self.index.documents(start, end)) + 1, _BOUNDS_TYPE
        return Npy(dtype.str).size(count * dtype.itemsize, b"")

    def _tokens(self, start: int, end: int) -> Content:
        header = Memory(npy.build_header(self.index.dtype, (end - start,)))
        return Rope((header, *(Extent(self._source, *piece) for piece in self.index.ranges(start, end))))

    def array(self, window: int) -> NDArray[Any]:
        """The tokens of a window, a new array of shape (n,)."""
        start, end = self.span(window)
        array = np.empty(end - start, self._dtype)
        room = array.view(np.uint8).data
        if self._first is not None:
            self._source.read_into(self._first + start * array.itemsize, room)
            return array
        for offset, size in self.index.ranges(start, end):
            self._source.read_into(offset, room[:size])
            room = room[size:]
        return array

    def bounds(self, window: int) -> NDArray[np.int32]:
        """Where the documents of a window begin and end in it: 0, the ends, and the number of its tokens."""
        start, end = self.span(window)
        documents = self.index.documents(start, end)
        ends = np.minimum(self.index.ends[documents.start : documents.stop], end) - start
        return np.append(0, ends).astype(_BOUNDS_TYPE)

    def _described(self, window: int) -> bytes:
        start, end = self.span(window)
        documents = [self._part(document, start, end) for document in self.index.documents(start, end)]
        about = {"window": window, "first": start, "length": end - start, "documents": documents}
        return (json.dumps(about) + "\n").encode()

    def _part(self, document: int, start: int, end: int) -> dict[str, Any]:
        """What a window has of a document: `skipped` tokens of it are before the window."""
        ends = self.index.ends
        first, last = int(ends[document - 1]) if document else 0, int(ends[document])
        return {
            "key": self._key(document),
            "skipped": max(start - first, 0),
            "start": max(first - start, 0),
            "end": min(last, end) - start,
            "ends": last <= end,
        }

    def _key(self, document: int) -> str:
        key = self.shard.tables["shards"].key(int(self.index.rows[document]))
        return key.partition("/")[0] if self.shard.shard.container is MEGATRON else key
