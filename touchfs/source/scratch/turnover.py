"""Whether the store can hold the blocks of files of other stores until they are read again.

A store that is too small for reads in random order evicts each block after a sample of it was read. Then it is better
to fetch what is read and nothing else, and to keep nothing. The store itself does not show when that ends. So this
plays a store that keeps blocks, with what this process reads: bytes read, and bytes of blocks that it had to evict.

All of this is a guess, so threads share it without a lock.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from time import monotonic

from touchfs.core.errors import TouchfsError
from touchfs.source.scratch.store import Scratch

# Blocks are not worth their bytes if so many times what is read of them is evicted; less than some blocks say nothing.
_WORTH, _LEAST_BLOCKS = 3, 16
_LOOK_SECONDS = 30.0


class Turnover:
    """A store of blocks of `size` bytes that is as large as the scratch store, and at least `memory`."""

    def __init__(self, size: int, memory: int) -> None:
        self.size = size
        self._memory = memory
        # Blocks by file and number, the one used last at the end, and the range that was read last.
        self._blocks: OrderedDict[tuple[str, int], tuple[int, int]] = OrderedDict()
        # Those of them that another process has fetched.
        self._given: set[tuple[str, int]] = set()
        self._read = self._evicted = 0
        self._room, self._look_at = 0, 0.0
        # True in a process that reads ahead for others, which find only blocks.
        self.is_for_others = False

    @property
    def is_wasteful(self) -> bool:
        """True if the exact ranges should be fetched."""
        return not self.is_for_others and self._evicted > max(_WORTH * self._read, _LEAST_BLOCKS * self.size)

    @property
    def ahead_max(self) -> int:
        """Bytes that may be fetched long before they are read: a quarter of what the store holds, or of the memory that
        keeps exact ranges. The rest is for what is read now, as the blocks of a window.
        """
        return (self._memory if self.is_wasteful else self._room_now()) // 4

    def see(self, file: str, start: int, stop: int) -> None:
        """Count bytes that are read. Those that were prefetched and then read count once."""
        size, room = self.size, self._room_now()
        for number in range(start // size, -(-stop // size)):
            block, part = (file, number), (max(start, number * size), min(stop, (number + 1) * size))
            if self._blocks.get(block) == part:
                continue
            self._blocks[block] = part
            self._read += part[1] - part[0]
            with suppress(KeyError):  # another thread changes them
                self._blocks.move_to_end(block)
                if len(self._blocks) * size > room:
                    oldest, _ = self._blocks.popitem(last=False)
                    self._evicted += 0 if oldest in self._given else size
                    self._given.discard(oldest)
        if self._read + self._evicted > 2 * room:  # what was long ago counts less
            self._read, self._evicted = self._read // 2, self._evicted // 2

    def see_given(self, file: str, number: int) -> None:
        """A block comes from another process: to evict it costs nothing."""
        if (file, number) in self._blocks:
            self._given.add((file, number))

    def forget(self) -> None:
        """Count from the beginning."""
        self._blocks.clear()
        self._given.clear()
        self._read = self._evicted = 0
        self._look_at = 0.0

    def _room_now(self) -> int:
        if (now := monotonic()) >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            room = 0
            with suppress(TouchfsError):  # it cannot be used: then blocks are in memory only
                room = Scratch.configured().limit_now()
            self._room = max(room, self._memory)
        return self._room
