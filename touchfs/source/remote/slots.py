"""Limit how many requests run at once in a process, and let files take turns.

So a file that many readers want does not hold up the others. What is fetched ahead of a reader never
waits here: it takes a slot if enough are free, and leaves one in sixteen to those who wait for an answer. A request
that takes long gives its slot back while it goes on: a store that does not answer takes no slots from others.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from touchfs.source.remote.storage_options import StorageOptions

# A request of 4 MiB takes less than that at 1 MB/s.
LENT_SECONDS = 5.0


class Slots:
    """Slots for requests. `take_spare` may be called by any thread, all else on the loop only."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def take_spare(self) -> bool:
        """Take a slot for what nobody waits for, if a sixteenth of all stays free. Returns whether it was taken."""
        limit = StorageOptions.configured().requests
        with self._lock:
            is_free = not self._waiting and self._taken + 1 <= limit - limit // 16
            self._taken += is_free
            return is_free

    @asynccontextmanager
    async def slot(self, file: str, *, is_taken: bool = False) -> AsyncIterator[None]:
        """Hold a slot for a request of a file, which may have been taken already."""
        if not is_taken:
            await self._take(file)
        has_slot = True

        def end() -> None:
            nonlocal has_slot
            if has_slot:
                has_slot = False
                self.give_back()

        timer = asyncio.get_running_loop().call_later(LENT_SECONDS, end)
        try:
            yield
        finally:
            timer.cancel()
            end()

    async def _take(self, file: str) -> None:
        limit = StorageOptions.configured().requests
        with self._lock:
            if self._taken < limit:
                self._taken += 1
                return
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(file, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Give a slot back: to a file that waits, in turn, or to anybody."""
        with self._lock:
            while self._waiting:
                file, readers = self._waiting.popitem(last=False)
                reader = readers.popleft()
                if readers:
                    self._waiting[file] = readers
                if not reader.done():
                    reader.set_result(None)
                    return
            self._taken -= 1


SLOTS = Slots()
