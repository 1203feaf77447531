"""The sorted records of a dataset, kept in the scratch store, with the size of every list.

    the records of each sort, sorted, a line each; zeros up to a multiple of 8 bytes
    tables of int64: for each sort, where each block of `BLOCK` records begins, and where the last one ends;
                     for each list, the bytes of its pieces before each block and in all, and their number;
                     for catalog.arrow, its rows and the bytes of each column of texts, likewise
    header: JSON, where these tables are
    u64 size of the header, 8s magic, u32 CRC-32 (zlib's) of all before, which is compared when a process opens the file

The file's name is a hash of the shards, so it is made once for a dataset, whichever process needs it first.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Iterator
from contextlib import closing
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, map_os_errors
from touchfs.core.progress import Progress
from touchfs.dataset import Dataset
from touchfs.lists.catalog import TEXTS, CatalogSizes, text_sizes
from touchfs.lists.kinds import DECODERS, LISTS, UTTERANCES, encode, lists_name
from touchfs.lists.records import UtteranceRecord, decode_utterance
from touchfs.lists.sorted_records import SortedRecords
from touchfs.lists.sorting import MEMORY
from touchfs.posix.trust import open_trusted_unique
from touchfs.source.mapped import map_file
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.scratch.store import Scratch

_ROWS = "utterances before each block"
BLOCK = 256
_MAGIC = b"TOUCHLST"
_WORD = 8
_TAIL, _CHECKSUM = struct.Struct("<Q8s"), struct.Struct("<I")


class StoredLists:
    """The lists of a dataset."""

    def __init__(self, file: ScratchFile) -> None:
        self._file = file  # locked as long as it is in use
        with map_os_errors(file.path), open(open_trusted_unique(file.path), "rb") as opened:
            self._data = map_file(opened.fileno())
        try:
            end = len(self._data) - _TAIL.size - _CHECKSUM.size
            size, magic = _TAIL.unpack_from(self._data, end)
            checksum = zlib.crc32(self._data[: -_CHECKSUM.size])
            if magic != _MAGIC or self._data[-_CHECKSUM.size :] != _CHECKSUM.pack(checksum):
                raise ValueError(magic)
            self._tables: dict[str, list[int]] = json.loads(bytes(self._data[end - size : end]))
        except (ValueError, struct.error) as error:
            raise FormatError("damaged, or not the lists of a dataset: remove it", path=file.path) from error

    def _table(self, name: str) -> NDArray[np.int64]:
        offset, count = self._tables[name]
        return np.frombuffer(self._data, np.int64, count, offset)

    def pieces(self, name: str, prefix: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        """Yield a list in pieces, one for each block of records from `first` up to `last`."""
        kind = LISTS[name]
        decode, blocks = DECODERS[kind.records], len(self._table(kind.records)) - 1
        for block in range(first, blocks if last is None else last):
            lines = self._lines(kind.records, block, block + 1)
            yield encode("".join([kind.piece(decode(line, prefix)) for line in lines]))

    def utterances(self, prefix: str, first: int, last: int) -> Iterator[UtteranceRecord]:
        """Yield the utterances of the blocks from `first` up to `last`."""
        for line in self._lines(UTTERANCES, first, last):
            yield decode_utterance(line, prefix)

    def catalog_sizes(self, prefix: str) -> CatalogSizes:
        """The sizes of the batches of `catalog.arrow`."""
        return CatalogSizes(self._table(_ROWS), [self._table(_texts_of(name)) for name in TEXTS], prefix)

    def _lines(self, sort: str, first: int, last: int) -> list[bytes]:
        offsets = self._table(sort).data
        return bytes(self._data[offsets[first] : offsets[last]]).splitlines()

    def starts(self, name: str, prefix: str) -> NDArray[np.int64]:
        """The offset of the piece of each block in a list without its header, and the end of the last one."""
        return self._table(_bytes_of(name)) + self._table(_pieces_of(name)) * LISTS[name].prefix_size(prefix)

    def count(self, name: str) -> int:
        return int(self._table(_pieces_of(name))[-1])


def open_lists(dataset: Dataset, progress: Progress = lambda done, total: None) -> StoredLists:
    """Open the lists of a dataset; make them if they are not in the scratch store.

    That reads all catalogs, and of samples without segments the transcript. Raises the errors of shards, and
    SourceError if the scratch store cannot be used. `progress` gets the number of samples read, and of all; sorting
    and counting them takes as long again.
    """
    scratch = Scratch.configured()
    return StoredLists(scratch.make(lists_name(dataset), build_lists(dataset, scratch.directory, progress=progress)))


def find_lists(dataset: Dataset) -> StoredLists | None:
    """Open the lists of a dataset if the scratch store has them."""
    file = Scratch.configured().find(lists_name(dataset))
    return None if file is None else StoredLists(file)


def build_lists(
    dataset: Dataset, directory: str, memory: int = MEMORY, progress: Progress = lambda done, total: None
) -> Iterator[bytes]:
    """Yield the file of a dataset's lists. At most about three times `memory` bytes of records are in memory; more of
    them are in temporary files in `directory`.
    """
    for with_speakers in (False, True):
        with closing(SortedRecords(directory, memory)) as found:
            if found.add(dataset, with_speakers=with_speakers, progress=progress):
                checksum = 0
                for piece in _build(found):
                    checksum = zlib.crc32(piece, checksum)
                    yield piece
                yield _CHECKSUM.pack(checksum)
                return


def _build(found: SortedRecords) -> Iterator[bytes]:
    tables, position = {name: array("q", [0]) for name in _table_names()}, 0
    for sort, decode in DECODERS.items():
        kinds = {name: kind for name, kind in LISTS.items() if kind.records == sort}
        offsets, records = tables[sort], found.records(sort)
        offsets[0] = position
        while block := list(islice(records, BLOCK)):
            decoded = [decode(record, "") for record in block]
            for name, kind in kinds.items():
                pieces = [kind.piece(record) for record in decoded]
                sizes, count = tables[_bytes_of(name)], tables[_pieces_of(name)]
                sizes.append(sizes[-1] + len(encode("".join(pieces))))
                count.append(count[-1] + sum(map(bool, pieces)))
            if sort == UTTERANCES:
                tables[_ROWS].append(tables[_ROWS][-1] + len(block))
                for name, size in zip(TEXTS, text_sizes(decoded), strict=True):
                    tables[_texts_of(name)].append(tables[_texts_of(name)][-1] + size)
            data = b"".join([record + b"\n" for record in block])
            yield data
            position += len(data)
            offsets.append(position)
    padding = bytes(-position % _WORD)
    yield padding
    position, places = position + len(padding), {}
    for name, table in tables.items():
        places[name] = position, len(table)
        yield table.tobytes()
        position += len(table) * table.itemsize
    header = json.dumps(places).encode()
    yield header
    yield _TAIL.pack(len(header), _MAGIC)


def _table_names() -> list[str]:
    lists = (table(name) for name in LISTS for table in (_bytes_of, _pieces_of))
    return [*DECODERS, *lists, _ROWS, *map(_texts_of, TEXTS)]


def _bytes_of(name: str) -> str:
    return f"bytes of {name}"


def _pieces_of(name: str) -> str:
    return f"pieces of {name}"


def _texts_of(column: str) -> str:
    return f"texts of {column}"
