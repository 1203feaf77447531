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
    """Made by the process that forks those which share it."""

    def __init__(self) -> None:
        # A slot's cell counts its opens and releases, so it is odd while it is open. The last one: where to look next.
        self._cells = memoryview(mmap.mmap(-1, 8 * (_SLOTS + 1))).cast("Q")
        self._rows = memoryview(mmap.mmap(-1, _SLOTS))
        self._texts = os.memfd_create("touchfs-open-files", os.MFD_CLOEXEC)
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
            first = cells[_SLOTS]
            for slot in chain(range(first, _SLOTS), range(first)):
                if not cells[slot] & 1:
                    break
            else:
                raise FullError(f"{_SLOTS} control files are open: close some")
            self._rows[slot] = 0
            cells[slot] += 1
            cells[_SLOTS] = (slot + 1) % _SLOTS
            return (cells[slot] >> 1 & _GENERATION_MASK) << _SLOT_BITS | slot
        finally:
            self._free_lock()

    def is_open(self, open_id: int) -> bool:
        cell: int = self._cells[open_id % _SLOTS]
        return cell & 1 == 1 and cell >> 1 & _GENERATION_MASK == open_id >> _SLOT_BITS

    def release(self, open_id: int) -> None:
        """Release an open, and its text. One that was released is left alone."""
        slot = open_id % _SLOTS
        self._take_lock()
        try:
            if self.is_open(open_id):
                self._cells[slot] += 1
                if self._owner(slot) == open_id:
                    how = _FALLOC_PUNCH_HOLE | _FALLOC_KEEP_SIZE
                    self._fallocate(self._texts, how, slot * _TEXT_SPACE, _TEXT_SPACE)
        finally:
            self._free_lock()

    def mark_row(self, open_id: int) -> None:
        """Note that the state store has, or may have, a row for an open."""
        self._rows[open_id % _SLOTS] = 1

    def has_row(self, open_id: int) -> bool:
        return bool(self._rows[open_id % _SLOTS])

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
        slot = open_id % _SLOTS
        whose, length = _HEADER.unpack(self._header(slot))
        return os.pread(self._texts, length, slot * _TEXT_SPACE + _HEADER.size) if whose == open_id + 1 else None

    def _keep(self, open_id: int, text: bytes) -> None:
        """The header is written last, so a text is whole or is not there, whenever this process is killed."""
        slot = open_id % _SLOTS
        used = os.fstat(self._texts).st_blocks * _BLOCK
        if used + len(text) > TEXTS_MAX:
            raise FullError(f"open control files hold {used >> 20} MB of text: close some, or take smaller batches")
        place = slot * _TEXT_SPACE
        view, done = memoryview(text), 0
        while done < len(view):
            done += os.pwrite(self._texts, view[done:], place + _HEADER.size + done)
        os.pwrite(self._texts, _HEADER.pack(open_id + 1, len(text)), place)

    def _owner(self, slot: int) -> int:
        """The open whose text is in a slot, -1 if there is none."""
        whose: int = _HEADER.unpack(self._header(slot))[0]
        return whose - 1

    def _header(self, slot: int) -> bytes:
        return os.pread(self._texts, _HEADER.size, slot * _TEXT_SPACE).ljust(_HEADER.size, b"\0")

    def _take_lock(self) -> None:
        self._thread.acquire()
        fcntl.lockf(self._texts, fcntl.LOCK_EX, 1)

    def _free_lock(self) -> None:
        fcntl.lockf(self._texts, fcntl.LOCK_UN, 1)
        self._thread.release()
