"""An overlay in the scratch store: its rows, and where those of some keys are.

    u64 hash of the key and u64 number of each row, in the parts of `touchfs.source.scratch.sorted_entries`
    an Arrow file with the rows in their order: the columns of `OverlayBatch`, named by `OverlayColumns`
    u64 offset, u64 number of rows, for each part
    u64 offset and u64 size of the Arrow file, u64 number of rows, 8s magic
    u32 CRC-32 (zlib's) of all before, which is compared when a process opens the file

The file's name follows from the bytes of the overlay, so it is read once, wherever it is. It is mapped: to join a shard
takes the pages of its rows.
"""

from __future__ import annotations

import json
import struct
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.core.control_characters import quote_name
from touchfs.core.errors import FormatError, SourceError, UsageError, map_os_errors
from touchfs.core.extent import Buffer
from touchfs.core.extras import load_pyarrow
from touchfs.core.names import hex_digest
from touchfs.core.packed_bytes import PackedBytes
from touchfs.format.id_hashes import hash_keys, hashes_of
from touchfs.indexing.overlays.rows import OverlayColumns, OverlayRows, packed, suffix_of
from touchfs.posix.trust import make_directory, open_trusted_unique
from touchfs.source.mapped import map_file
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.scratch.sorted_entries import PARTS, EntrySorter, SortedPart, part_of
from touchfs.source.scratch.store import Scratch
from touchfs.source.store import StoredFile

if TYPE_CHECKING:
    import pyarrow

_VERSION = 1
_MAGIC = b"TOUCHOVR"
_TAIL, _CHECKSUM = struct.Struct("<QQQ8s"), struct.Struct("<I")
_PLACES = 2 * PARTS
_PIECE = 1 << 20
# Rows whose keys have equal hashes, which are compared in the end
_SUSPECTS_MAX = 1000


class _HashedRows(NamedTuple):
    hashes: NDArray[np.uint64]
    rows: NDArray[np.int64]


class Overlay:
    """The rows of an overlay whose content has this `digest`, in mapped `data`.

    `file` is locked as long as it is in use. Raises FormatError if the data is damaged.
    """

    def __init__(self, data: memoryview, digest: str, file: ScratchFile | None = None) -> None:
        self._file = file
        end = len(data) - _TAIL.size - _CHECKSUM.size
        if end < 8 * _PLACES or data[-_CHECKSUM.size :] != _CHECKSUM.pack(zlib.crc32(data[: -_CHECKSUM.size])):
            raise FormatError("is damaged in the scratch store")
        start, size, self.rows, magic = _TAIL.unpack_from(data, end)
        if magic != _MAGIC:
            raise FormatError("is another file in the scratch store")
        arrow = load_pyarrow()
        self._reader = arrow.ipc.open_file(arrow.py_buffer(data[start : start + size]))
        counts = [self._reader.get_batch(i).num_rows for i in range(self._reader.num_record_batches)]
        self._firsts = np.cumsum([0, *counts])
        self.columns = OverlayColumns(*json.loads(self._reader.schema.metadata[b"touchfs"]))
        places = data[end - 8 * _PLACES : end].cast("Q").tolist()
        self._parts = [_part(data, *place) for place in zip(places[::2], places[1::2], strict=True)]
        self._keys = hash_keys(digest.encode())

    def find(self, keys: PackedBytes) -> NDArray[np.int64]:
        """The number of the row with each key, -1 if there is none; shape (n,)."""
        hashes, found = hashes_of(keys, self._keys), np.full(len(keys.lengths), -1)
        parts = part_of(hashes)
        place = np.zeros(len(hashes), np.int64)
        for number in np.unique(parts).tolist():
            asked = np.flatnonzero(parts == number)
            place[asked] = np.searchsorted(self._parts[number].hashes, hashes[asked])
        left = np.arange(len(hashes))
        while len(left):
            row = np.full(len(left), -1)
            for number in np.unique(parts[left]).tolist():
                part, asked = self._parts[number], np.flatnonzero(parts[left] == number)
                asked = asked[place[left[asked]] < len(part.hashes)]
                at = place[left[asked]]
                row[asked] = np.where(part.hashes[at] == hashes[left[asked]], part.rows[at], -1)
            left, row = left[row >= 0], row[row >= 0]
            is_own = packed(self.take(row, [0])[0]).equal(keys.chosen(left))
            found[left[is_own]] = row[is_own]
            left = left[~is_own]
            place[left] += 1
        return found

    def take(self, rows: NDArray[np.int64], columns: list[int] | None = None) -> list[pyarrow.Array]:
        """The columns of bytes of these rows, all or those at some places: keys, JSON, and each text."""
        arrow = load_pyarrow()
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        batches, places = np.searchsorted(self._firsts, ascending, "right") - 1, range(len(self._reader.schema))
        taken: list[list[pyarrow.Array]] = []
        for number in np.unique(batches).tolist():
            batch = self._reader.get_batch(number)
            within = arrow.array(ascending[batches == number] - self._firsts[number])
            taken.append([batch.column(i).take(within) for i in (places if columns is None else columns)])
        count = len(places) if columns is None else len(columns)
        if not taken:
            return [arrow.array([], arrow.large_binary())] * count
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return [arrow.concat_arrays([each[i] for each in taken]).take(arrow.array(back)) for i in range(count)]


def _part(data: memoryview, offset: int, count: int) -> _HashedRows:
    rows = offset + 8 * count
    return _HashedRows(np.frombuffer(data, "<u8", count, offset), np.frombuffer(data, "<i8", count, rows))


def open_overlay(file: StoredFile, column: str | None, digest: str) -> Overlay:
    """Open the overlay in a file whose content has this digest; read it if that is not done yet.

    Raises UsageError, FormatError and the errors of its store.
    """
    scratch, name = Scratch.configured(), _stored_name(file.path, column, digest)
    for is_last in (False, True):
        stored = scratch.make(name, _pieces(file, column, digest, scratch.directory))
        try:
            with map_os_errors(stored.path), open(open_trusted_unique(stored.path), "rb") as opened:
                return Overlay(map_file(opened.fileno()), digest, stored)
        except FormatError:
            if is_last:
                raise
            with map_os_errors(stored.path):
                scratch.remove([stored.path])
    raise AssertionError


def is_read(path: str, column: str | None, digest: str) -> bool:
    """True if the overlay at a path is in the scratch store, so nothing is wrong with it."""
    return Scratch.configured().find(_stored_name(path, column, digest)) is not None


def _stored_name(path: str, column: str | None, digest: str) -> str:
    return hex_digest(json.dumps([_VERSION, suffix_of(path), digest, column]).encode())


def read_overlay(file: StoredFile, column: str | None, digest: str) -> Overlay:
    """Like `open_overlay`, but nothing is kept: it is of one shard, which is joined once."""
    directory = Scratch.configured().directory
    with map_os_errors(directory):
        make_directory(directory)
        with tempfile.TemporaryFile(dir=directory) as made:
            for piece in _pieces(file, column, digest, directory):
                made.write(piece)
            made.flush()
            return Overlay(map_file(made.fileno()), digest)


def _pieces(file: StoredFile, column: str | None, digest: str, directory: str) -> Iterator[Buffer]:
    checksum = 0
    with map_os_errors(directory), tempfile.TemporaryFile(dir=directory) as made:
        for piece in _sections(made, OverlayRows(file, column), hash_keys(digest.encode()), directory):
            checksum = zlib.crc32(piece, checksum)
            yield piece
    yield _CHECKSUM.pack(checksum)


def _sections(made: IO[bytes], rows: OverlayRows, keys: NDArray[np.uint64], directory: str) -> Iterator[Buffer]:
    arrow = load_pyarrow()
    fields = [("", arrow.large_binary())] * (2 + len(rows.columns.texts))
    schema = arrow.schema(fields, {"touchfs": json.dumps(rows.columns)})
    writer = arrow.ipc.new_file(arrow.PythonFile(made, "w"), schema)
    count = position = 0
    room = Scratch.configured().limit_now()

    places, suspects = np.zeros((PARTS, 2), np.uint64), list[tuple[int, int]]()
    with tempfile.TemporaryFile(dir=directory) as temporary:
        sorter = EntrySorter(temporary)
        for batch in rows:
            if made.tell() > room:
                raise SourceError("has more rows than the scratch store may hold: --scratch-size raises the limit")
            writer.write_batch(arrow.record_batch(batch.columns, schema=schema))
            hashes = hashes_of(batch.keys, keys)
            sorter.add(hashes, np.arange(count, count + len(hashes)))
            count += len(hashes)
        for number, part in enumerate(sorter.parts()):
            places[number] = position, len(part.hashes)
            suspects += _equal_hashes(part)[: _SUSPECTS_MAX - len(suspects)]
            for entries in part:
                position += entries.nbytes
                yield entries.data.cast("B")
    writer.close()
    made.flush()
    size = made.tell()
    if suspects:
        _check_keys(made, sorted(suspects))
    made.seek(0)
    while block := made.read(_PIECE):
        yield block
    yield bytes(-size % 8)
    yield places.tobytes()
    yield _TAIL.pack(position, size, count, _MAGIC)


def _equal_hashes(part: SortedPart) -> list[tuple[int, int]]:
    repeated = np.flatnonzero(part.hashes[1:] == part.hashes[:-1])
    pairs = np.sort(np.stack([part.values[repeated], part.values[repeated + 1]], axis=1).astype(np.int64))
    return sorted((first, second) for first, second in pairs.tolist())[:_SUSPECTS_MAX]


def _check_keys(made: IO[bytes], pairs: list[tuple[int, int]]) -> None:
    """Raise UsageError if two rows have one key."""
    reader = load_pyarrow().ipc.open_file(load_pyarrow().PythonFile(made, "r"))
    firsts = np.cumsum([0, *(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))])

    def key(row: int) -> bytes:
        batch = int(np.searchsorted(firsts, row, "right")) - 1
        found: bytes = reader.get_batch(batch).column(0)[row - int(firsts[batch])].as_py()
        return found

    for first, second in pairs:
        if key(first) == key(second):
            shown = quote_name(key(first).decode("utf-8", "surrogateescape"))
            raise UsageError(f"rows {first + 1} and {second + 1} have the key {shown!r}: leave one row for each key")
