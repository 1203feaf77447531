"""The opens of a mount's control files: which there are, and the texts of those that change nothing.

All of it is in memory that the processes of a mount share, so it outlives any of them, and ends with the last. Requests
may be sent twice, to any worker: what was released stays so, and a text that was made once is what every read of its
open gets, by whoever it is made.

An open has a *slot* and is one *generation* of it. Both are in its id, which is given again after some 10^11 others.
Texts are in a file in memory, each slot's at its own place, so that the file is one large hole. Who changes any of
it holds a record lock on that file, which dies with its holder.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Callable
from itertools import chain

from touchfs.errors import FullError

ID_BITS = 39
_SLOT_BITS = 16
_SLOTS = 1 << _SLOT_BITS
_SLOT_MASK = _SLOTS - 1
# A text in memory, a row of the state store.
_HAS_TEXT, _HAS_ROW = 1, 2
_GENERATION_MASK = (1 << ID_BITS - _SLOT_BITS) - 1
# Far more than the text of the largest batch.
_TEXT_SPACE = 1 << 32
# What all texts together may take. That of a batch of 100,000 paths takes 10 MB.
TEXTS_MAX = 1 << 27
# In front of a text: one more than the id of its open, and its length.
_HEADER = struct.Struct("<QQ")
_BLOCK = 512  # of `st_blocks`
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2


class OpenTable:
    """Made by the process that forks those which share it. With `alone` no two of them use it at the same time, one
    only after the other has ended.
    """

    def __init__(self, *, alone: bool = False) -> None:
        # A slot's cell counts its opens and releases, so it is odd while it is open. The last one: where to look next.
        self._cells = memoryview(mmap.mmap(-1, 8 * (_SLOTS + 1))).cast("Q")
        self._flags = memoryview(mmap.mmap(-1, _SLOTS))
        self._texts = os.memfd_create("touchfs-open-files", os.MFD_CLOEXEC)
        self._alone = alone
        self._thread = threading.Lock()  # record locks are of a process
        self._fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        self._fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def __del__(self) -> None:
        os.close(self._texts)

    def open(self) -> int:
        """Return the id of a new open. Raises FullError."""
        cells = self._cells
        self._take_lock()
        try:
            slot = cells[_SLOTS]
            if cells[slot] & 1:
                slot = next((slot for slot in chain(range(slot, _SLOTS), range(slot)) if not cells[slot] & 1), -1)
                if slot < 0:
                    raise FullError(f"{_SLOTS} control files are open: close some")
            self._flags[slot] = 0
            cell = cells[slot] = cells[slot] + 1
            cells[_SLOTS] = (slot + 1) % _SLOTS
            return (cell >> 1 & _GENERATION_MASK) << _SLOT_BITS | slot
        finally:
            self._free_lock()

    def is_open(self, open_id: int) -> bool:
        cell: int = self._cells[open_id & _SLOT_MASK]
        return cell & 1 == 1 and cell >> 1 & _GENERATION_MASK == open_id >> _SLOT_BITS

    def release(self, open_id: int) -> bool:
        """Release an open, and its text. Returns whether it was open and may have a row in the state store."""
        slot = open_id & _SLOT_MASK
        self._take_lock()
        try:
            if not self.is_open(open_id):
                return False
            self._cells[slot] += 1
            flags = self._flags[slot]
            if flags & _HAS_TEXT:
                how = _FALLOC_PUNCH_HOLE | _FALLOC_KEEP_SIZE
                self._fallocate(self._texts, how, slot * _TEXT_SPACE, _TEXT_SPACE)
            return flags & _HAS_ROW > 0
        finally:
            self._free_lock()

    def mark_row(self, open_id: int) -> None:
        """Note that the state store has, or may have, a row for an open."""
        self._flags[open_id & _SLOT_MASK] |= _HAS_ROW

    def has_row(self, open_id: int) -> bool:
        return self._flags[open_id & _SLOT_MASK] & _HAS_ROW > 0

    def text(self, open_id: int, make: Callable[[], bytes]) -> bytes:
        """Return the text of an open: what `make` makes for its first read, and the same from then on.

        Nothing if it was released. Raises FullError, and what `make` raises.
        """
        text = self._kept(open_id)
        if text is not None or not self.is_open(open_id):
            return text or b""
        made = make()
        self._take_lock()
        try:
            text = self._kept(open_id)  # another process may have been faster
            if text is None and self.is_open(open_id):
                self._keep(open_id, made)
        finally:
            self._free_lock()
        return made if text is None else text

    def _kept(self, open_id: int) -> bytes | None:
        slot = open_id & _SLOT_MASK
        if not self._flags[slot] & _HAS_TEXT:
            return None
        place = slot * _TEXT_SPACE
        whose, length = _HEADER.unpack(os.pread(self._texts, _HEADER.size, place).ljust(_HEADER.size, b"\0"))
        return os.pread(self._texts, length, place + _HEADER.size) if whose == open_id + 1 else None

    def _keep(self, open_id: int, text: bytes) -> None:
        """The header is written last, so a text is whole or is not there, whenever this process is killed."""
        slot = open_id & _SLOT_MASK
        place = slot * _TEXT_SPACE
        used = os.fstat(self._texts).st_blocks * _BLOCK
        if used + len(text) > TEXTS_MAX:
            raise FullError(f"open control files hold {used >> 20} MB of text: close some, or take smaller batches")
        # From now on a release gives the room back.
        self._flags[slot] |= _HAS_TEXT
        view, done = memoryview(text), 0
        while done < len(view):
            done += os.pwrite(self._texts, view[done:], place + _HEADER.size + done)
        os.pwrite(self._texts, _HEADER.pack(open_id + 1, len(text)), place)

    def _take_lock(self) -> None:
        self._thread.acquire()
        if not self._alone:
            fcntl.lockf(self._texts, fcntl.LOCK_EX, 1)

    def _free_lock(self) -> None:
        if not self._alone:
            fcntl.lockf(self._texts, fcntl.LOCK_UN, 1)
        self._thread.release()
