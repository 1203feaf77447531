"""Content that is computed in windows: its size is known in advance, and a window is computed when it is first read.

The last `KEPT_BYTES` of windows are cached per process; older ones are computed again. So however large a content is,
at most `KEPT_BYTES` and one window per reader are in memory. Contents of the same name share their windows: a file that
is opened again is not computed again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.source.counts import count

KEPT_BYTES = 1 << 26


class ComputedContent:
    """Content of `size` bytes. `render(offset, length)` returns one window; `offset` is a multiple of `window`.

    `name` identifies the bytes and their windows; by default no other content has the same.

    Reading raises whatever `render` raises. Readers of one content wait for each other, as they mostly need the same
    window.
    """

    __slots__ = ("_lock", "_name", "_render", "_window", "size")

    def __init__(
        self, size: int, window: int, render: Callable[[int, int], Buffer], name: Hashable | None = None
    ) -> None:
        self.size = size
        self._name: Hashable = object() if name is None else name
        self._window = window
        self._render = render
        self._lock = threading.Lock()

    def read(self, offset: int, length: int) -> Buffer:
        """Read a range, and compute the windows that are not cached."""
        pieces = [self._at(number)[first:last] for number, first, last in self._pieces(offset, length)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """Read a range if all its windows are cached; else None."""
        pieces = []
        for number, first, last in self._pieces(offset, length):
            data = WINDOWS.find((self._name, number))
            if data is None:
                return None
            pieces.append(data[first:last])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _pieces(self, offset: int, length: int) -> Iterator[tuple[int, int, int]]:
        """The windows that a range covers: number, start and end in each."""
        end = min(offset + length, self.size)
        while offset < end:
            number, first = divmod(offset, self._window)
            last = min(end - number * self._window, self._window)
            yield number, first, last
            offset += last - first

    def _at(self, number: int) -> Buffer:
        data = WINDOWS.find((self._name, number))
        if data is None:
            with self._lock:
                return WINDOWS.get((self._name, number), lambda: self._compute(number))
        return data

    def _compute(self, number: int) -> Buffer:
        start = number * self._window
        length = min(self._window, self.size - start)
        data = self._render(start, length)
        if len(data) != length:
            raise FormatError(f"{len(data)} bytes where {length} were expected: the shard says another length")
        return data


class WindowCache(BoundedCache[tuple[Hashable, int], Buffer]):
    """The last `KEPT_BYTES` of windows, by the name of their content and their number. Hits and misses are counted."""

    def __init__(self) -> None:
        super().__init__(KEPT_BYTES, len)

    def find(self, key: tuple[Hashable, int]) -> Buffer | None:
        data = super().find(key)
        if data is not None:
            count("window_hits")
        return data

    def keep(self, key: tuple[Hashable, int], value: Buffer) -> None:
        count("window_misses")
        super().keep(key, value)


# The limit for all contents of this process.
WINDOWS = WindowCache()
