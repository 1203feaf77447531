"""`shards/` of a mount with `--verify`: files are compared with their checksums before they are shown.

A file of up to `WHOLE_MAX` bytes is read and compared before its first bytes are shown. A larger one is compared while
it is read from its beginning to its end. Its last bytes are shown only if it is right: the first reader of these waits
until all that has not been seen is compared, as after another worker has read a part. What was right once is not
compared again; a file that is known to be damaged cannot be read.
"""

from __future__ import annotations

import threading
from typing import Any

from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content
from touchfs.tree.catalog_view import CatalogView
from touchfs.tree.open_shards import NonblockingShards, OpenShards, TreeShard
from touchfs.verify.checksums import load_checksums
from touchfs.verify.crc32c import PIECE, checksum_of, extender

WHOLE_MAX = 64 << 20
# The kernel reads ahead in several requests at once, whose answers may come in another order. So many bytes are kept
# until those before them come. Where a program reads farther ahead, the end of the file is read twice.
_EARLY_MAX = 4 << 20


class _ShardChecks:
    """The checksums of a shard, None if it has none; and of each row whether it was right, one bit each."""

    __slots__ = ("_right", "checksums", "damaged")

    def __init__(self, checksums: NDArray[Any] | None) -> None:
        self.checksums = checksums
        self.damaged: dict[int, str] = {}
        self._right = bytearray(0 if checksums is None else len(checksums) // 8 + 1)

    def is_right(self, row: int) -> bool:
        return self.checksums is None or bool(self._right[row // 8] >> row % 8 & 1)

    def is_known(self, row: int, path: str) -> bool:
        """Like `is_right`. Raises FormatError if the file at a path is known to be damaged."""
        if row in self.damaged:
            raise FormatError(self.damaged[row], path=path)
        return self.is_right(row)

    def found(self, row: int, path: str, size: int, checksum: int) -> None:
        """Note what the file at a path has. Raises FormatError if that is not its checksum."""
        if self.checksums is None:
            return
        expected = int(self.checksums[row])
        if checksum != expected:
            self.damaged[row] = f"damaged: its {size} bytes have the checksum {checksum:08x}, not {expected:08x}"
            raise FormatError(self.damaged[row], path=path)
        self._right[row // 8] |= 1 << row % 8


class Checks:
    """The results of comparing files, by shard. Threads may use it at once: at worst a file is read twice."""

    def __init__(self) -> None:
        self._shards: dict[int, _ShardChecks] = {}

    def known(self, shard: TreeShard, row: int, path: str, content: Content) -> Content | None:
        """The content at a path if it was compared before, else None. Never waits. Raises FormatError for damage."""
        checks = self._shards.get(shard.shard_id)
        if checks is None:
            return None
        return content if checks.is_known(row, path) else None

    def check(self, shard: TreeShard, row: int, path: str, content: Content) -> Content:
        """The content at a path after it was compared, or one that is compared as it is read. Raises FormatError."""
        checks = self._shards.get(shard.shard_id)
        if checks is None:
            checks = self._shards[shard.shard_id] = _ShardChecks(load_checksums(shard.shard))
        if checks.is_right(row):
            return content
        if content.size > WHOLE_MAX:
            return _CheckedContent(content, checks, row, path)
        checks.found(row, path, content.size, checksum_of(content))
        return content


class _CheckedContent:
    """A content at a path that is compared with its checksum before its last bytes are shown.

    Several threads may read it: each piece is taken by the one that finds it to be the next.
    """

    def __init__(self, content: Content, checks: _ShardChecks, row: int, path: str) -> None:
        self._path = path
        self.size = content.size
        self._content = content
        self._checks = checks
        self._row = row
        self._extend = extender()
        self._checksum = self._next = 0
        self._early: dict[int, bytes] = {}
        self._early_bytes = 0
        self._lock, self._comparing = threading.Lock(), threading.Lock()

    def read(self, offset: int, length: int) -> Buffer:
        """See `Content.read`. Raises FormatError at the end of a damaged file, and from then on everywhere."""
        if self._checks.is_known(self._row, self._path):
            return self._content.read(offset, length)
        data = self._content.read(offset, length)
        self._see(offset, data)
        if offset + len(data) >= self.size:
            self._compare_rest()
        return data

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """See `Content.read_nowait`. Raises as `read`."""
        if self._checks.is_known(self._row, self._path):
            return self._content.read_nowait(offset, length)
        data = self._content.read_nowait(offset, length)
        if data is None:
            return None
        self._see(offset, data)
        is_shown = offset + len(data) < self.size or self._checks.is_known(self._row, self._path)
        return data if is_shown else None

    def _compare_rest(self) -> None:
        """Compare the file, of which the bytes from `_next` on are read now."""
        with self._comparing:
            if self._checks.is_known(self._row, self._path):
                return
            with self._lock:
                checksum, position = self._checksum, self._next
            while position < self.size:
                piece = self._content.read(position, PIECE)
                checksum, position = self._extend(checksum, piece), position + len(piece)
            self._checks.found(self._row, self._path, self.size, checksum)

    def _see(self, offset: int, data: Buffer) -> None:
        with self._lock:  # held for the checksum of a request, some 10 µs
            if not offset:
                self._checksum = self._next = 0
                self._early.clear()
                self._early_bytes = 0
            is_early = self._next < offset <= self._next + _EARLY_MAX and offset not in self._early
            if is_early and self._early_bytes + len(data) <= _EARLY_MAX:
                self._early[offset] = bytes(data)
                self._early_bytes += len(data)
            piece: Buffer | None = data if offset == self._next else None
            while piece:
                self._checksum = self._extend(self._checksum, piece)
                self._next += len(piece)
                piece = self._early.pop(self._next, None)
                self._early_bytes -= len(piece or b"")
            if self._next == self.size and data:
                self._checks.found(self._row, self._path, self.size, self._checksum)


class CheckedView(CatalogView):
    """`shards/` with files that are compared with their checksums."""

    def __init__(self, shards: OpenShards, number: int, checks: Checks) -> None:
        super().__init__(shards, "shards", number)
        self._checks = checks

    def nonblocking(self, shards: NonblockingShards) -> CheckedView:
        return CheckedView(shards, self._number, self._checks)

    def _shard(self, shard_id: int) -> TreeShard:
        return self._shards.get(shard_id)  # whose catalog may have checksums

    def content(self, inode: int) -> Content:
        content = super().content(inode)
        shard, _, row = self._row(inode)
        path = self.path(inode)
        known = self._checks.known(shard, row, path, content)
        return self._shards.known_or_found(known, lambda: self._checks.check(shard, row, path, content))
