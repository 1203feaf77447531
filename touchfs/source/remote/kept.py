"""Pieces of files of other stores that are on this machine: in the memory of the process, or in the scratch store.

A piece is a part of one version of a file, so its name is a hash of the URL, the version and its position, and it never
changes. In the scratch store it is a value, shared by all processes and mounts. It is verified by its checksum when a
process opens it, unless it has written it itself, and then read in parts. A file that is open stays readable when it
is evicted, and takes room on the disk that the store no longer counts. So those that have been evicted are closed when
others are opened.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from time import monotonic, time_ns
from typing import NamedTuple, TypeAlias

from touchfs.core.errors import SourceError, TouchfsError
from touchfs.core.extent import Buffer
from touchfs.core.names import hex_digest
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.source.scratch.claims import CLAIMS
from touchfs.source.scratch.source import ScratchValue
from touchfs.source.scratch.store import Scratch
from touchfs.source.scratch.turnover import Turnover
from touchfs.source.scratch.value import open_value
from touchfs.source.scratch.write_behind import WRITE_BEHIND

# Bytes in the memory of a process, and open pieces, for all files.
MEMORY_MAX, OPEN_MAX = 64 << 20, 8192
# The interval at which access times are set.
USED_SECONDS = 60.0
# A store that has no room for a piece is not asked again for this time: to look for room, it counts all its files.
_REFUSED_SECONDS = 1.0


class FilePiece(NamedTuple):
    """The part `[number * size, (number + 1) * size)` of a version of a file, which `prefix` names."""

    prefix: str
    size: int
    number: int

    @property
    def start(self) -> int:
        return self.number * self.size

    @property
    def name(self) -> str:
        return hex_digest(f"{self.prefix}{self.size}\0{self.number}".encode(errors="surrogateescape"))


class FileRange(NamedTuple):
    """An exact range of a version of a file: it is kept in memory only, until it is read."""

    prefix: str
    size: int
    start: int


Piece: TypeAlias = FilePiece | FileRange


class _RefusedPiece(NamedTuple):
    """A store that had no room for a piece at a moment of the monotonic clock, and why."""

    scratch: Scratch
    moment: float
    reason: SourceError


class KeptPieces:
    """All pieces that this process has in memory or open. Safe for several threads: the lock is for changes of
    what is open, which are more than one step.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory: BoundedCache[Piece, memoryview] = BoundedCache(MEMORY_MAX, len)
        self._open: OrderedDict[FilePiece, ScratchValue] = OrderedDict()
        self._touch_at = 0.0
        self._refusal: _RefusedPiece | None = None  # the last one
        os.register_at_fork(after_in_child=self._forked)

    def read_nowait(self, piece: FilePiece, begin: int, end: int) -> Buffer | None:
        """Bytes of a piece, by their positions in it, if they can be had without waiting."""
        if (data := self.in_memory(piece)) is not None:
            return data[begin:end]
        if (value := self._open.get(piece)) is None:
            return None
        value.is_used = True
        try:
            return value.read_nowait(begin, end - begin)
        except TouchfsError:
            return None

    def read_open(self, piece: FilePiece, begin: int, end: int) -> Buffer | None:
        """Bytes of a piece, by their positions in it, if it is in memory or open."""
        if (data := self.in_memory(piece)) is not None:
            return data[begin:end]
        value = self._open.get(piece)
        return None if value is None else self._read(piece, value, begin, end)

    def read(self, piece: FilePiece, begin: int, end: int) -> Buffer | None:
        """Bytes of a piece, by their positions in it, or None if it is not kept."""
        if (data := self.read_open(piece, begin, end)) is not None:
            return data
        try:
            value = self._opened(piece)
        except TouchfsError:  # damaged, or not to be trusted
            return None
        return None if value is None else self._read(piece, value, begin, end)

    def take(self, piece: FilePiece) -> memoryview | None:
        """Have a piece in memory that another process has just kept; None if it is not kept."""
        try:
            path = Scratch.configured().value_path(piece.name)
            if (opened := open_value(path)) is None:
                return None
            self._add(piece, ScratchValue(path, opened[0]))
        except (OSError, TouchfsError):
            return None
        self._see_given(piece)
        self.remember(piece, data := memoryview(opened[1]))
        return data

    def _read(self, piece: FilePiece, value: ScratchValue, begin: int, end: int) -> Buffer | None:
        value.is_used = True
        try:
            return value.read(begin, end - begin)
        except TouchfsError:  # evicted, and not open any more
            with self._lock:
                self._open.pop(piece, None)
            return None

    def has(self, piece: FilePiece) -> bool:
        """True if a piece seems to be kept; what is in the store is not verified."""
        return piece in self._memory or piece in self._open or self.is_on_disk(piece)

    def is_on_disk(self, piece: FilePiece) -> bool:
        """True if a piece seems to be in the scratch store."""
        try:
            return os.path.lexists(Scratch.configured().value_path(piece.name))
        except TouchfsError:  # a store that cannot be used
            return False

    def touch(self, piece: FilePiece) -> None:
        """Have the scratch store evict others before this piece."""
        path = Scratch.configured().value_path(piece.name)
        with suppress(OSError):  # another user's, or on a read-only disk
            os.utime(path, ns=(time_ns(), os.lstat(path).st_mtime_ns), follow_symlinks=False)

    def refusal_since(self, moment: float) -> SourceError | None:
        """Why a piece was not kept on the disk, if one was not since a moment of the monotonic clock."""
        refusal = self._refusal
        return refusal.reason if refusal is not None and refusal.moment >= moment else None

    @property
    def is_refused(self) -> bool:
        """True if the store had no room for a piece just now."""
        refusal = self._refusal
        return (
            refusal is not None
            and monotonic() < refusal.moment + _REFUSED_SECONDS
            and refusal.scratch == Scratch.configured()
        )

    def in_memory(self, piece: Piece) -> memoryview | None:
        """A piece that is in memory."""
        data = self._memory.find(piece)
        if data is not None and isinstance(piece, FilePiece) and (value := self._open.get(piece)) is not None:
            value.is_used = True
        return data

    def remember(self, piece: Piece, data: memoryview) -> None:
        self._memory.keep(piece, data)

    def offer(self, piece: Piece, data: memoryview) -> bool:
        """Keep a piece soon, if there is room, and then give up the claim to it. Returns False if so much is waiting
        for the disk already that the caller must wait.
        """
        if isinstance(piece, FileRange):
            return True
        if self.is_refused:
            CLAIMS.release(piece.name)
            return True
        return WRITE_BEHIND.offer(len(data), partial(self._keep, piece, data))

    def forget(self) -> None:
        """Have no piece in memory or open any more."""
        self._memory.forget()
        with self._lock:
            for value in self._open.values():
                value.close()
            self._open.clear()

    def _keep(self, piece: FilePiece, data: memoryview) -> None:
        scratch = Scratch.configured()
        try:
            if not self.is_refused and (written := scratch.keep_open(piece.name, data)) is not None:
                self._add(piece, ScratchValue(scratch.value_path(piece.name), written))
        except SourceError as error:  # no room, or no place: then it is not kept
            self._refusal = _RefusedPiece(scratch, monotonic(), error)
        finally:
            CLAIMS.release(piece.name)

    def _opened(self, piece: FilePiece) -> ScratchValue | None:
        scratch = Scratch.configured()
        path = scratch.value_path(piece.name)
        if not os.path.lexists(path):  # as most are when they are needed first
            return None
        value = self._add(piece, ScratchValue(path))
        self._see_given(piece)
        return value

    def _see_given(self, piece: FilePiece) -> None:
        if piece.size == TURNOVER.size:
            TURNOVER.see_given(piece.prefix, piece.number)

    def _add(self, piece: FilePiece, value: ScratchValue) -> ScratchValue:
        value.open()
        self._touch_used()
        with self._lock:
            if (other := self._open.pop(piece, None)) is not None:  # another thread has opened it meanwhile
                other.close()
            oldest = [self._open.popitem(last=False) for _ in range(min(2, len(self._open)))]
            has_room = len(self._open) + len(oldest) < OPEN_MAX
            for each, other in oldest:
                if has_room and other.exists:
                    self._open[each] = other
                else:
                    other.close()
            self._open[piece] = value
        return value

    def _touch_used(self) -> None:
        """Set the access times of the open pieces that were read, once in `USED_SECONDS`."""
        if (now := monotonic()) < self._touch_at:
            return
        self._touch_at = now + USED_SECONDS
        with self._lock:
            values = list(self._open.values())
        for value in values:
            if value.is_used:
                value.touch()

    def _forked(self) -> None:
        self._lock = threading.Lock()


KEPT = KeptPieces()
# Of blocks of 1 MiB.
TURNOVER = Turnover(1 << 20, MEMORY_MAX)
