"""Reads of a version of a file of another store, in pieces that are kept on this machine.

A piece is a block of 1 MiB, or a small one of 128 KiB. Who reads on, or reads much, gets blocks, and the next ones are
fetched ahead of him (`read_ahead.py`). The first small read anywhere else in a block gets a small piece, and the second
one the whole block, also if it is another process's: random reads move an eighth of the bytes, and readers of all
samples in any order pay at most one short request more for each block. While the scratch store evicts most blocks
before they are read again (`scratch/turnover.py`), who does not read in order gets exact ranges, which are in memory
only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import uuid4

from touchfs.core.extent import Buffer
from touchfs.source.counts import count
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.calls import on_loop, result_in_time
from touchfs.source.remote.flights import FLIGHTS, Version
from touchfs.source.remote.kept import KEPT, TURNOVER, FilePiece, FileRange, Piece
from touchfs.source.remote.read_ahead import Reader, Readers
from touchfs.source.remote.versions import tells_version
from touchfs.source.scratch.claims import CLAIMS
from touchfs.source.scratch.write_behind import WRITE_BEHIND

BLOCK, SMALL = 1 << 20, 128 << 10


class _Part(NamedTuple):
    """A range of a piece, and its bytes if they are here."""

    piece: Piece
    begin: int
    end: int
    data: Buffer | None


class RemoteBlocks:
    """The pieces of one version of a file. Safe for several threads, and for children of the process."""

    def __init__(self, url: str, fingerprint: Fingerprint) -> None:
        # Of a file without etag and time, another version may have the same name: no other process gets its pieces.
        is_kept = tells_version(fingerprint)
        self.version = Version(url, fingerprint, is_kept)
        self._prefix = f"block\0{url}\0{fingerprint.hashed}\0" + ("" if is_kept else f"{uuid4()}\0")
        self._readers = Readers()
        # For a block, a bit for each of its small pieces that was asked for first; 0 if those that were read were here.
        self._touched: dict[int, int] = {}

    def block(self, number: int) -> FilePiece:
        return FilePiece(self._prefix, BLOCK, number)

    def forms(self, number: int) -> list[list[FilePiece]]:
        """The two ways in which a block may be kept: as one piece, or in small pieces."""
        block = self.block(number)
        stop = min(block.start + BLOCK, self.version.fingerprint.size)
        return [[block], [piece for piece, _, _ in self._small(block.start, stop)]]

    def read_nowait(self, start: int, stop: int) -> Buffer | None:
        """Bytes that can be had without waiting; else None."""
        return self._read_open(start, stop, KEPT.read_nowait)

    def read_open(self, start: int, stop: int) -> Buffer | None:
        """Bytes of pieces that are in memory or open; else None."""
        return self._read_open(start, stop, KEPT.read_open)

    def _read_open(self, start: int, stop: int, read: Callable[[FilePiece, int, int], Buffer | None]) -> Buffer | None:
        parts = []
        for number in range(start // BLOCK, -(-stop // BLOCK)):
            block = number * BLOCK
            first, last = max(start - block, 0), min(stop - block, BLOCK)
            data = read(FilePiece(self._prefix, BLOCK, number), first, last)
            if data is None and number in self._touched:
                small = [read(*each) for each in self._small(block + first, block + last)]
                found = [each for each in small if each is not None]
                data = b"".join(found) if len(found) == len(small) else None
            if data is None:
                return None
            parts.append(data)
        reader = self._readers.follow(start, stop)
        TURNOVER.see(self._prefix, start, stop)
        if reader.until > reader.fetched:
            on_loop(self._fetch_ahead, reader)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read(self, start: int, stop: int, deadline: float) -> Buffer:
        """Bytes from `start` to `stop`, which lie in the file. Raises what `read_range` raises."""
        reader = self._readers.follow(start, stop)
        is_first = reader.read <= stop - start  # nothing was read before it
        parts = self._all_parts(start, stop, is_first, is_in_order=reader.is_in_order)
        missing = [part.piece for part in parts if part.data is None]
        fetched = dict(zip(missing, FLIGHTS.fetch(self.version, missing, deadline), strict=True)) if missing else {}
        if reader.until > reader.fetched:
            on_loop(self._fetch_ahead, reader)
        url = self.version.url
        pieces = [
            result_in_time(fetched[part.piece], url, deadline)[part.begin : part.end]
            if part.data is None
            else part.data
            for part in parts
        ]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def prefetch(self, start: int, stop: int, deadline: float) -> float:
        """Have the pieces from `start` to `stop` fetched, without waiting for them.

        Returns how much that is of what may be fetched before it is read: with more than 1, pieces give way unread.
        """
        parts = self._all_parts(start, stop, is_first=True)
        missing = [part.piece for part in parts if part.data is None]
        size = sum(piece.size for piece in missing if FLIGHTS.find(piece) is None)
        if missing:
            FLIGHTS.fetch(self.version, missing, deadline)
        return size / TURNOVER.ahead_max

    def _all_parts(self, start: int, stop: int, is_first: bool, *, is_in_order: bool = False) -> list[_Part]:
        TURNOVER.see(self._prefix, start, stop)
        may_be_exact = TURNOVER.is_wasteful and stop - start <= BLOCK and not is_in_order
        exact = FileRange(self._prefix, stop - start, start)
        if may_be_exact and ((data := KEPT.in_memory(exact)) is not None or FLIGHTS.find(exact) is not None):
            return [_Part(exact, 0, stop - start, data)]
        parts: list[_Part] = []
        is_small = is_first and stop - start <= SMALL
        for number in range(start // BLOCK, -(-stop // BLOCK)):
            parts += self._parts(number, max(start, number * BLOCK), min(stop, (number + 1) * BLOCK), is_small)
        if not may_be_exact or all(part.data is not None or FLIGHTS.find(part.piece) is not None for part in parts):
            return parts
        count("exact_ranges")
        return [_Part(exact, 0, stop - start, None)]

    def _parts(self, number: int, first: int, last: int, is_small: bool) -> list[_Part]:
        """The parts of a read in one block, from the block itself or from small pieces of it."""
        block = self.block(number)
        begin, end = first - block.start, last - block.start
        whole = _Part(block, begin, end, KEPT.read(block, begin, end))
        if whole.data is not None:
            return [whole]
        small = [
            _Part(piece, begin, end, KEPT.read(piece, begin, end)) for piece, begin, end in self._small(first, last)
        ]
        if all(part.data is not None for part in small):
            self._touched.setdefault(number, 0)  # who does not wait looks for small pieces, too
            return small  # even if the block is on its way: that takes longer
        if FLIGHTS.find(block) is not None:
            return [whole]
        asked = sum(1 << piece.number % (BLOCK // SMALL) for piece, _, _ in self._small(first, last))
        touched = self._touched[number] = self._touched.get(number) or self._touched_elsewhere(block.start) or asked
        return small if is_small and touched == asked else [whole]

    def _touched_elsewhere(self, start: int) -> int:
        """The small pieces of the block at `start` that another process fetches, or has kept, as in `_touched`."""
        pieces = [piece for piece, _, _ in self._small(start, start + BLOCK)]
        is_there = [KEPT.is_on_disk(piece) or CLAIMS.is_taken(piece.name) for piece in pieces]
        return sum(1 << place for place, each in enumerate(is_there) if each)

    def _small(self, first: int, last: int) -> Iterator[tuple[FilePiece, int, int]]:
        """The small pieces of a range, and what of each is in the range."""
        for number in range(first // SMALL, -(-last // SMALL)):
            piece = FilePiece(self._prefix, SMALL, number)
            yield piece, max(first - piece.start, 0), min(last - piece.start, SMALL)

    def _fetch_ahead(self, reader: Reader) -> None:
        """Fetch what a reader will want, as far as there are slots. Runs on the loop of the clients."""
        if WRITE_BEHIND.is_behind:
            return
        until, size = reader.until, self.version.fingerprint.size
        numbers = range(max(reader.fetched, reader.end) // BLOCK, -(-min(until, size) // BLOCK))
        missing = [piece for number in numbers if not KEPT.has(piece := self.block(number))]
        begun = FLIGHTS.fetch_ahead(self.version, missing)
        reader.fetched = max(missing[begun].start if begun < len(missing) else until, reader.fetched)
