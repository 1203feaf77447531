"""Pieces that are being fetched. A second reader of a piece waits for the first request, so each is asked for once.

Pieces side by side are one request, up to `REQUEST_MAX` bytes, and all requests of a read are sent at once. Of several
processes with one scratch store, the one that claims a piece fetches it, and others find it in the store
(`scratch/claims.py`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import takewhile
from time import monotonic
from typing import NamedTuple

from touchfs.core.errors import SourceError
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.calls import begin, deadline_from_now, in_thread
from touchfs.source.remote.kept import KEPT, FilePiece, FileRange, Piece
from touchfs.source.remote.ranges import read_range
from touchfs.source.remote.slots import SLOTS
from touchfs.source.scratch.claims import CLAIMS

# With 20 ms of latency and 50 MB/s, a request of 4 MiB uses four fifths of its connection; two such wait 0.1 s.
REQUEST_MAX = 4 << 20
# Pieces wait in steps for a disk that is slower than the store. Of those that wait for more than these bytes, none is
# kept on the disk.
_DISK_SECONDS, _WAITING_MAX = 0.005, 128 << 20
# How often a piece that another process has claimed is looked for, and how long: that process may hang.
_CLAIM_SECONDS, _CLAIMED_SECONDS = 0.005, 5.0


# Pieces that one request fetches.
_Flight = list[tuple[Piece, Future[memoryview]]]


class Version(NamedTuple):
    """A version of a file of another store. `is_kept` says whether its pieces may be kept on the disk."""

    url: str
    fingerprint: Fingerprint
    is_kept: bool


class Flights:
    """All fetches of this process. Safe for several threads."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._flying: dict[Piece, Future[memoryview]] = {}
        # Bytes that wait for a slow disk. Only the loop changes it.
        self.waiting = 0

    def find(self, piece: Piece) -> Future[memoryview] | None:
        return self._flying.get(piece)

    def fetch(self, version: Version, pieces: Sequence[Piece], deadline: float) -> list[Future[memoryview]]:
        """Fetch pieces of a file, in ascending order. A future raises what `read_range` raises."""
        futures, new = [], []
        with self._lock:
            for piece in pieces:
                future = self._flying.get(piece)
                if future is None:
                    future = Future()
                    if (data := KEPT.in_memory(piece)) is not None:  # it has landed since the caller looked
                        future.set_result(data)
                    else:
                        self._flying[piece] = future
                        new.append((piece, future))
                futures.append(future)
        ours: _Flight = []
        for piece, future in new:
            if isinstance(piece, FileRange) or _is_ours(version, piece):
                ours.append((piece, future))
            else:
                begin(self._follow(version, piece, future, deadline))
        for flight in _flights(ours):
            begin(self._fly(version, flight, deadline, has_slot=False))
        return futures

    def fetch_ahead(self, version: Version, pieces: Sequence[FilePiece]) -> int:
        """Fetch pieces that nobody waits for yet, in ascending order, as far as there are slots to spare. Returns the
        number of pieces, from the first on, that are on their way now.
        """
        with self._lock:
            new = [each for each in pieces if each not in self._flying]
            ours: _Flight = [(each, Future()) for each in new if _is_ours(version, each)]
            flights = list(takewhile(lambda _: SLOTS.take_spare(), _flights(ours)))
            self._flying |= {piece: future for flight in flights for piece, future in flight}
            left = {piece for piece, _ in ours if piece not in self._flying}
            flying = sum(1 for _ in takewhile(lambda each: each not in left, pieces))
        for piece in left:
            _give_up(piece)
        for flight in flights:
            begin(self._fly(version, flight, deadline_from_now(), has_slot=True))
        return flying

    async def _fly(self, version: Version, flight: _Flight, deadline: float, *, has_slot: bool) -> None:
        start = flight[0][0].start
        last = flight[-1][0]
        try:
            stop = min(last.start + last.size, version.fingerprint.size)
            data = await read_range(version.url, version.fingerprint, start, stop, deadline, has_slot=has_slot)
        except BaseException as error:
            for piece, future in flight:
                _give_up(piece)
                self._land(piece)
                future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        # Parts of one buffer, as copying costs more than that it stays until the last of them is forgotten.
        parts = [(piece, data[piece.start - start :][: piece.size]) for piece, _ in flight]
        del data
        # Before anybody knows that they are here, so that who waits for the disk waits for these, too.
        late = [part for part in parts if not KEPT.offer(*part)] if version.is_kept else []
        for piece, _ in late:
            _give_up(piece)
        size = sum(len(part) for _, part in late)
        is_kept = self.waiting + size <= _WAITING_MAX
        if is_kept:
            self.waiting += size
        for (piece, part), (_, future) in zip(parts, flight, strict=True):
            KEPT.remember(piece, part)
            self._land(piece)
            future.set_result(part)
        if is_kept and late:
            del parts
            await self._keep(late, size)

    async def _follow(self, version: Version, piece: FilePiece, future: Future[memoryview], deadline: float) -> None:
        """Have a piece that another process fetches; fetch it here if that does not keep it."""
        until = monotonic() + min(_CLAIMED_SECONDS, (deadline - monotonic()) / 2)
        while not CLAIMS.take(piece.name) and monotonic() < until:
            await asyncio.sleep(_CLAIM_SECONDS)
        data: memoryview | None = None
        with suppress(SourceError):  # no thread can be started
            data = await in_thread(KEPT.take, piece)
        if data is None:
            await self._fly(version, [(piece, future)], deadline, has_slot=False)
            return
        CLAIMS.release(piece.name)
        self._land(piece)
        future.set_result(data)

    async def _keep(self, parts: list[tuple[Piece, memoryview]], size: int) -> None:
        """Keep pieces on a disk that is slower than the store. Their `size` is in `waiting`."""
        try:
            while parts:
                if KEPT.offer(*parts[0]):
                    del parts[0]
                else:
                    await asyncio.sleep(_DISK_SECONDS)
        finally:
            self.waiting -= size

    def _land(self, piece: Piece) -> None:
        with self._lock:
            self._flying.pop(piece, None)


def _is_ours(version: Version, piece: FilePiece) -> bool:
    """Claim a piece that others would find in the store. False if another process has claimed it, or kept it since."""
    if not version.is_kept or KEPT.is_refused:
        return True
    if not CLAIMS.take(piece.name):
        return False
    if is_there := KEPT.is_on_disk(piece):
        CLAIMS.release(piece.name)
    return not is_there


def _give_up(piece: Piece) -> None:
    if isinstance(piece, FilePiece):
        CLAIMS.release(piece.name)


def _flights(pieces: _Flight) -> list[_Flight]:
    """Pieces that lie side by side are together."""
    flights: list[_Flight] = []
    for piece, future in pieces:
        first, last = (flights[-1][0][0], flights[-1][-1][0]) if flights else (piece, piece)
        end = piece.start + piece.size
        if flights and last.start + last.size == piece.start and end - first.start <= REQUEST_MAX:
            flights[-1].append((piece, future))
        else:
            flights.append([(piece, future)])
    return flights


FLIGHTS = Flights()
