"""The table of a mount's open control files, with the texts of those that need no state store.

It is in memory shared by the processes of a mount, so it survives any of them, and ends with the last. A request may be
sent twice, to a process and its successor: a released open stays released, and all reads of an open get the text that
was made first.

An open has a *slot* and a *generation* of it. Its id contains both, and is reused after some 10^11 others. Texts are in
a sparse file in memory, each slot's at its own offset. One process uses the table at a time: the next one begins when
the one before has ended, so a lock between its threads is enough.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable
from itertools import chain

from touchfs.core.errors import FullError
from touchfs.posix.memory.shared import SharedFile, shared_cells

ID_BITS = 39
_SLOT_BITS = 16
_SLOTS = 1 << _SLOT_BITS
_SLOT_MASK = _SLOTS - 1
# Flags: the open has a text in memory; it may have a row in the state store; its text in memory is known to be that of
# a committed step; the state store has forgotten whether its step was committed.
_HAS_TEXT, _HAS_ROW, _IS_SETTLED, _IS_LOST = 1, 2, 4, 8
_GENERATION_MASK = (1 << ID_BITS - _SLOT_BITS) - 1
# Far more than the text of the largest batch.
_TEXT_SPACE = 1 << 32
# Bytes of all texts together. The text of a batch of 100,000 paths takes 10 MB.
TEXTS_MAX = 1 << 27
# In front of a text: one more than the id of its open, and its length.
_HEADER = struct.Struct("<QQ")
_BLOCK = 512  # of `st_blocks`
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2


def rows_of(mount: int) -> tuple[int, int]:
    """Return the first and the last row id for open files of a mount."""
    return mount << ID_BITS, (mount + 1 << ID_BITS) - 1


class OpenTable:
    """The table. Create it before forking the processes that use it one after another."""

    def __init__(self) -> None:
        # A slot's cell counts its opens and releases, so it is odd while open. Besides its flags there are the next
        # slot to try, and the first row id of the mount, in a store that may forget the mount.
        self._cells, self._flags, self._next, self._first_row = shared_cells(_SLOTS, _SLOTS, 1, 1)
        self._texts = SharedFile("touchfs-open-files")
        self._lock = threading.Lock()
        self._fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        self._fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def open(self) -> int:
        """Return the id of a new open. Raises FullError."""
        cells = self._cells
        with self._lock:
            slot = self._next[0]
            if cells[slot] & 1:
                slot = next((slot for slot in chain(range(slot, _SLOTS), range(slot)) if not cells[slot] & 1), -1)
                if slot < 0:
                    raise FullError(f"{_SLOTS} control files are open: close some")
            self._flags[slot] = 0
            cell = cells[slot] = cells[slot] + 1
            self._next[0] = (slot + 1) % _SLOTS
            return (cell >> 1 & _GENERATION_MASK) << _SLOT_BITS | slot

    def is_open(self, open_id: int) -> bool:
        """Return True if the open was not released."""
        cell = self._cells[open_id & _SLOT_MASK]
        return cell & 1 == 1 and cell >> 1 & _GENERATION_MASK == open_id >> _SLOT_BITS

    def release(self, open_id: int) -> bool:
        """Release an open and free its text. Returns True if it was open and may have a row in the state store."""
        slot = open_id & _SLOT_MASK
        with self._lock:
            if not self.is_open(open_id):
                return False
            self._cells[slot] += 1
            flags = self._flags[slot]
            if flags & _HAS_TEXT:
                how = _FALLOC_PUNCH_HOLE | _FALLOC_KEEP_SIZE
                self._fallocate(self._texts.descriptor, how, slot * _TEXT_SPACE, _TEXT_SPACE)
            return flags & _HAS_ROW > 0

    def mark_row(self, open_id: int) -> None:
        """Record that the state store has, or may have, a row for an open."""
        self._flags[open_id & _SLOT_MASK] |= _HAS_ROW

    def has_row(self, open_id: int) -> bool:
        """Return True if the state store may have a row for an open."""
        return self._flags[open_id & _SLOT_MASK] & _HAS_ROW > 0

    def text(self, open_id: int, make: Callable[[], bytes]) -> bytes:
        """Return the text of an open. The first call makes it with `make`; all later calls return the same text.

        Returns b"" if the open was released. Raises FullError, and the errors of `make`.
        """
        text = self._load(open_id)
        if text is not None or not self.is_open(open_id):
            return text or b""
        made = make()
        with self._lock:
            text = self._load(open_id)  # another thread may have been faster
            if text is None and self.is_open(open_id):
                self._store(open_id, made)
        return made if text is None else text

    def propose(self, open_id: int, text: bytes) -> None:
        """Keep the text of a step before its commit, unless that of a committed one is kept. Raises FullError."""
        with self._lock:
            if self.is_open(open_id) and not self._flags[open_id & _SLOT_MASK] & _IS_SETTLED:
                self._store(open_id, text)

    def proposed(self, open_id: int) -> bytes | None:
        """Return the text of an open in memory, if there is one; of a step, the one that was proposed last."""
        return self._load(open_id)

    def settle(self, open_id: int) -> None:
        """Record that the proposed text is that of a committed step."""
        with self._lock:
            if self.is_open(open_id):
                self._flags[open_id & _SLOT_MASK] |= _IS_SETTLED

    def is_settled(self, open_id: int) -> bool:
        """Return True if the proposed text is that of a committed step."""
        return self._flags[open_id & _SLOT_MASK] & _IS_SETTLED > 0 and self.is_open(open_id)

    def enter(self, first_row: int) -> None:
        """Record the first row id of the mount. If it had another one, its opens that may have rows are lost."""
        with self._lock:
            if self._first_row[0] not in (0, first_row):
                for slot in range(_SLOTS):
                    if self._flags[slot] & (_HAS_ROW | _IS_SETTLED) == _HAS_ROW:
                        self._flags[slot] |= _IS_LOST
            self._first_row[0] = first_row

    def is_lost(self, open_id: int) -> bool:
        """Return True if the store has forgotten the row of an open."""
        return self._flags[open_id & _SLOT_MASK] & _IS_LOST > 0

    def _load(self, open_id: int) -> bytes | None:
        slot = open_id & _SLOT_MASK
        if not self._flags[slot] & _HAS_TEXT:
            return None
        file, offset = self._texts.descriptor, slot * _TEXT_SPACE
        owner, length = _HEADER.unpack(os.pread(file, _HEADER.size, offset).ljust(_HEADER.size, b"\0"))
        return os.pread(file, length, offset + _HEADER.size) if owner == open_id + 1 else None

    def _store(self, open_id: int, text: bytes) -> None:
        """Write a text. The header comes last, so a text is complete or absent, whenever this process is killed."""
        slot = open_id & _SLOT_MASK
        file, offset = self._texts.descriptor, slot * _TEXT_SPACE
        used = os.fstat(file).st_blocks * _BLOCK
        if used + len(text) > TEXTS_MAX:
            raise FullError(f"open control files hold {used >> 20} MB of text: close some, or take smaller batches")
        # Set before writing, so that a release frees the space.
        self._flags[slot] |= _HAS_TEXT
        view, done = memoryview(text), 0
        while done < len(view):
            done += os.pwrite(file, view[done:], offset + _HEADER.size + done)
        os.pwrite(file, _HEADER.pack(open_id + 1, len(text)), offset)
