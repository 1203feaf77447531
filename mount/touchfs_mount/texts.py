"""The texts of control files that were read last in this worker, for their reads up to the end of file."""

from __future__ import annotations

import threading
from collections import OrderedDict

_COUNT, _SIZE = 64, 1 << 25


class Texts:
    """By handle. Several threads use it."""

    def __init__(self) -> None:
        self._texts: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, handle: int) -> bytes | None:
        return self._texts.get(handle)

    def keep(self, handle: int, text: bytes) -> None:
        with self._lock:
            self._size += len(text) - len(self._texts.pop(handle, b""))
            self._texts[handle] = text
            while len(self._texts) > _COUNT or (self._size > _SIZE and len(self._texts) > 1):
                self._size -= len(self._texts.popitem(last=False)[1])

    def drop(self, handle: int) -> bytes | None:
        """What it was, if it is still here."""
        with self._lock:
            text = self._texts.pop(handle, None)
            self._size -= len(text or b"")
            return text
