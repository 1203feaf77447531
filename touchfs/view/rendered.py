"""Contents whose bytes have to be computed: their size is known before, and they are computed when first read.

What was computed is kept while it is among the last `KEPT_BYTES` of the process, and computed again after that.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable

from touchfs.errors import FormatError

KEPT_BYTES = 1 << 26


class Rendered:
    """The bytes that `render` returns, which are `size`. Reading may raise what that raises."""

    __slots__ = ("_render", "size")

    def __init__(self, size: int, render: Callable[[], bytes]) -> None:
        self.size = size
        self._render = render

    def read(self, offset: int, length: int) -> bytes:
        data = _kept.get(self)
        if data is None:
            data = self._render()
            if len(data) != self.size:
                raise FormatError(f"{len(data)} bytes where {self.size} were expected: the shard says another length")
            _kept.add(self, data)
        return data[offset : offset + length]

    def read_nowait(self, offset: int, length: int) -> bytes | None:
        data = _kept.get(self)
        return None if data is None else data[offset : offset + length]


class _Kept:
    def __init__(self) -> None:
        self._data: OrderedDict[Rendered, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._lock = threading.Lock()  # another thread may have held it at the fork

    def get(self, content: Rendered) -> bytes | None:
        return self._data.get(content)

    def add(self, content: Rendered, data: bytes) -> None:
        with self._lock:
            if content not in self._data:
                self._size += len(data)
            self._data[content] = data
            while self._size > KEPT_BYTES and len(self._data) > 1:
                _, oldest = self._data.popitem(last=False)
                self._size -= len(oldest)


_kept = _Kept()
