"""Blocks of files of other stores, kept on this machine.

A block is 1 MiB of one version of a file, so its name is a hash of the URL, the version and its position, and it never
changes. It is a value of the scratch store: verified by its checksum when it is read, evicted when the store is full,
and shared by all processes and mounts. If the store cannot be used, blocks are only kept in memory.

Blocks that are missing side by side are one request, and all requests of a read are sent at once. Whoever reads on
where the last read ended gets the next blocks before they are asked for.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from uuid import uuid4

from touchfs.errors import SourceError
from touchfs.names import hex_digest
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.options import StorageOptions
from touchfs.source.remote.ranges import read_ranges
from touchfs.source.scratch.behind import BEHIND
from touchfs.source.scratch.store import Scratch

BLOCK = 1 << 20
# A request has at most so many blocks, so that several run at once.
REQUEST_BLOCKS = 4
# Blocks in the memory of a process, for all files.
RECENT_BLOCKS = 48


class _Recent:
    """The blocks that were used last, by name."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def get(self, name: str) -> bytes | None:
        with self._lock:
            block = self._blocks.get(name)
            if block is not None:
                self._blocks.move_to_end(name)
            return block

    def add(self, name: str, block: bytes) -> None:
        with self._lock:
            self._blocks[name] = block
            while len(self._blocks) > RECENT_BLOCKS:
                self._blocks.popitem(last=False)

    def _forked(self) -> None:
        self._lock = threading.Lock()


_RECENT = _Recent()


class RemoteBlocks:
    """The blocks of one version of a file."""

    def __init__(self, url: str, version: Fingerprint) -> None:
        self._url = url
        self._version = version
        self._scratch = Scratch.configured()
        # Of a file without etag and time, another version may have the same name: no other process gets its blocks.
        self._is_kept = version.etag is not None or version.mtime_ns > 0 or StorageOptions.configured().immutable
        self._prefix = f"block\0{url}\0{version.hashed}\0" + ("" if self._is_kept else f"{uuid4()}\0")
        self._fetching = threading.Lock()
        self._next, self._ahead = 0, 0

    def read_nowait(self, start: int, stop: int) -> bytes | None:
        """Bytes whose blocks are in memory; else None."""
        numbers = range(start // BLOCK, -(-stop // BLOCK))
        found = [_RECENT.get(self._name(number)) for number in numbers]
        blocks = [block for block in found if block is not None]
        return _cut(blocks, start, stop) if len(blocks) == len(numbers) else None

    def read(self, start: int, stop: int) -> bytes:
        """Bytes from `start` to `stop`, which lie in the file. Raises what `read_ranges` raises."""
        first, end = start // BLOCK, -(-stop // BLOCK)
        last_block = -(-self._version.size // BLOCK)
        # Reading on doubles what is fetched ahead, up to 16 blocks; any other read ends it.
        self._ahead = min(max(2 * self._ahead, 1), 16) if first in (self._next, self._next - 1) and first else 0
        self._next = end
        wanted = range(first, end)
        found = {number: block for number in wanted if (block := self._kept(number)) is not None}
        missing = [number for number in wanted if number not in found]
        if missing:
            with self._fetching:  # another thread may be fetching the same ones
                found |= {number: block for number in missing if (block := _RECENT.get(self._name(number))) is not None}
                missing = [number for number in missing if number not in found]
                if missing:
                    ahead = [
                        number
                        for number in range(end, min(end + self._ahead, last_block))
                        if self._kept(number) is None
                    ]
                    found |= self._fetch([*missing, *ahead])
        return _cut([found[number] for number in wanted], start, stop)

    def _fetch(self, numbers: list[int]) -> dict[int, bytes]:
        size = self._version.size
        runs: list[list[int]] = []
        for number in numbers:
            if runs and runs[-1][-1] + 1 == number and len(runs[-1]) < REQUEST_BLOCKS:
                runs[-1].append(number)
            else:
                runs.append([number])
        ranges = [(run[0] * BLOCK, min((run[-1] + 1) * BLOCK, size)) for run in runs]
        found: dict[int, bytes] = {}
        for run, data in zip(runs, read_ranges(self._url, self._version, ranges), strict=True):
            for index, number in enumerate(run):
                found[number] = block = data[index * BLOCK : (index + 1) * BLOCK]
                _RECENT.add(self._name(number), block)
                if self._is_kept:
                    BEHIND.do(len(block), partial(self._keep, self._name(number), block))
        return found

    def _kept(self, number: int) -> bytes | None:
        name = self._name(number)
        if (block := _RECENT.get(name)) is not None:
            return block
        if not self._is_kept:
            return None
        with suppress(SourceError):
            if (block := self._scratch.kept(name)) is not None:
                expected = min(BLOCK, self._version.size - number * BLOCK)
                if len(block) == expected:
                    _RECENT.add(name, block)
                    return block
        return None

    def _keep(self, name: str, block: bytes) -> None:
        with suppress(SourceError):  # no room, or no place: then it is not kept
            self._scratch.keep(name, block)

    def _name(self, number: int) -> str:
        return hex_digest(f"{self._prefix}{number}".encode(errors="surrogateescape"))


def _cut(blocks: list[bytes], start: int, stop: int) -> bytes:
    begin = start % BLOCK
    if len(blocks) == 1:
        return blocks[0][begin : begin + stop - start]
    return b"".join(blocks)[begin : begin + stop - start]
