"""Contents whose bytes are computed, in windows: the size is known before, a window is computed when it is read first.

Windows are kept while they are among the last `KEPT_BYTES` of the process, and computed again after that. So however
large a content is, no more than `KEPT_BYTES` and one window for each reader are in memory.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

from touchfs.errors import FormatError

KEPT_BYTES = 1 << 26


class ComputedContent:
    """`size` bytes. `render(offset, length)` returns those of a window, whose offset is a multiple of `window`.

    Reading raises what `render` raises. Readers of one content wait for each other: mostly they want one window.
    """

    __slots__ = ("_lock", "_render", "_window", "size")

    def __init__(self, size: int, window: int, render: Callable[[int, int], bytes]) -> None:
        self.size = size
        self._window = window
        self._render = render
        self._lock = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        pieces = [self._at(number)[first:last] for number, first, last in self._pieces(offset, length)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_nowait(self, offset: int, length: int) -> bytes | None:
        pieces = []
        for number, first, last in self._pieces(offset, length):
            data = _kept.get((self, number))
            if data is None:
                return None
            pieces.append(data[first:last])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _pieces(self, offset: int, length: int) -> Iterator[tuple[int, int, int]]:
        """The windows that a range is in, and from where to where in each."""
        end = min(offset + length, self.size)
        while offset < end:
            number, first = divmod(offset, self._window)
            last = min(end - number * self._window, self._window)
            yield number, first, last
            offset += last - first

    def _at(self, number: int) -> bytes:
        data = _kept.get((self, number))
        if data is None:
            with self._lock:
                data = _kept.get((self, number))
                if data is None:
                    data = self._rendered(number)
                    _kept.add((self, number), data)
        return data

    def _rendered(self, number: int) -> bytes:
        start = number * self._window
        length = min(self._window, self.size - start)
        data = self._render(start, length)
        if len(data) != length:
            raise FormatError(f"{len(data)} bytes where {length} were expected: the shard says another length")
        return data


class _Kept:
    def __init__(self) -> None:
        self._data: OrderedDict[tuple[ComputedContent, int], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._lock = threading.Lock()  # another thread may have held it at the fork

    def get(self, window: tuple[ComputedContent, int]) -> bytes | None:
        return self._data.get(window)

    def add(self, window: tuple[ComputedContent, int], data: bytes) -> None:
        with self._lock:
            if window not in self._data:
                self._size += len(data)
            self._data[window] = data
            while self._size > KEPT_BYTES and len(self._data) > 1:
                _, oldest = self._data.popitem(last=False)
                self._size -= len(oldest)


_kept = _Kept()
