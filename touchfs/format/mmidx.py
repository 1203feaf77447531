"""The index of a .bin file: MMIDIDX version 1, as TouchNet and Megatron-LM write it.

The .bin is the samples' elements end to end, with nothing between them. Beside it the .idx says of which type the
elements are, how many each sample has, at which byte it begins, and where documents (runs of samples) begin.

Several relatives share magic and version and nothing in the header tells them apart, but their sizes do: so the file
must be exactly as long as its counts say. Of the .bin nothing is known here; `complete` judges the samples by its size.

Source: `IndexWriter` in megatron/core/datasets/indexed_dataset.py and in touchnet/data/dataset.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError
from touchfs.extent import Buffer, Plan

DTYPES: Mapping[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("i1"),
    3: np.dtype("<i2"),
    4: np.dtype("<i4"),
    5: np.dtype("<i8"),
    6: np.dtype("<f8"),
    7: np.dtype("<f4"),
    8: np.dtype("<u2"),
}

MAGIC = b"MMIDIDX\0\0"
VERSION = 1

# magic, version, dtype code, count of samples N, entries of the document array M
_HEADER = struct.Struct("<9sQBQQ")
HEADER_SIZE = _HEADER.size
_VERSION_OFFSET = 9
_CODE_OFFSET = 17
_COUNTS_OFFSET = 18
# The arrays that follow, unaligned: lengths in elements [N], byte offsets into the .bin [N], documents [M]
_LENGTH = np.dtype("<i4")
_OFFSET = np.dtype("<i8")
_DOCUMENT = np.dtype("<i8")

# int32: 37 hours of 16 kHz audio, 2 GiB of bytes
LENGTH_LIMIT = 2**31

_STRANGERS = {
    b"TNTIDX\0\0": "this is a legacy TNTIDX index, which Megatron-LM dropped in 2023: convert it with an old version",
    b"v1.": "this is a DALI index of a tar (text), not the index of a .bin",
}


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """One entry a sample, except that `documents` holds the ordinal of the first sample of each document, then N."""

    dtype: np.dtype[Any]
    lengths: NDArray[np.int64]  # in elements
    offsets: NDArray[np.int64]  # in bytes, into the .bin
    documents: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """In bytes."""
        return self.lengths * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True, slots=True)
class Header:
    """What an index begins with: enough to know how many samples there are, and where each one's entry is."""

    dtype: np.dtype[Any]
    count: int
    documents: int  # entries of the document array


def parse_header(data: Buffer, size: int) -> Header:
    """From the first HEADER_SIZE bytes (or more) of an index file of `size` bytes."""
    for magic, refusal in _STRANGERS.items():
        if data[: len(magic)] == magic:
            raise FormatError(refusal, offset=0)
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise FormatError(f"not an index of a .bin: it begins with {bytes(data[: len(MAGIC)])!r}", offset=0)
    if len(data) < HEADER_SIZE:
        raise FormatError(f"the index ends inside its header of {HEADER_SIZE} bytes", offset=len(data))
    _, version, code, count, documents = _HEADER.unpack_from(data)
    if version != VERSION:
        raise FormatError(f"index version {version}, only {VERSION} is known", offset=_VERSION_OFFSET)
    if code not in DTYPES:
        raise FormatError(f"unknown dtype code {code}", offset=_CODE_OFFSET)
    expected = HEADER_SIZE + count * (_LENGTH.itemsize + _OFFSET.itemsize) + documents * _DOCUMENT.itemsize
    if size != expected:
        raise FormatError(
            f"an index of {count} samples and {documents} documents has {expected} bytes, this has {size}",
            offset=_COUNTS_OFFSET,
        )
    return Header(DTYPES[code], count, documents)


def parse_index(data: Buffer) -> Index:
    """Documents are taken as they are: files with empty ones, and with [0] alone, exist."""
    header = parse_header(data, len(data))
    lengths = np.frombuffer(data, _LENGTH, header.count, _lengths_at(0)).astype(np.int64)
    offsets = np.frombuffer(data, _OFFSET, header.count, _offsets_at(header, 0)).astype(np.int64)
    documents = np.frombuffer(data, _DOCUMENT, header.documents, _offsets_at(header, header.count)).astype(np.int64)
    _check(header, 0, lengths, offsets)
    return Index(header.dtype, lengths, offsets, documents)


def scan_entries(header: Header, first: int, count: int) -> Plan[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """Lengths (in elements) and offsets (in bytes) of the samples `[first, first + count)`, and nothing else read."""
    lengths = np.frombuffer((yield _lengths_at(first), count * _LENGTH.itemsize), _LENGTH)
    offsets = np.frombuffer((yield _offsets_at(header, first), count * _OFFSET.itemsize), _OFFSET)
    _check(header, first, lengths, offsets)
    return lengths, offsets


def _lengths_at(sample: int) -> int:
    return HEADER_SIZE + sample * _LENGTH.itemsize


def _offsets_at(header: Header, sample: int) -> int:
    return _lengths_at(header.count) + sample * _OFFSET.itemsize


def _check(header: Header, first: int, lengths: NDArray[np.signedinteger[Any]], offsets: NDArray[np.int64]) -> None:
    """Refuse what no writer wrote, in the entries of the samples from `first` on."""
    if (row := _first(lengths < 0)) is not None:
        problem = f"sample {first + row} has a negative length, {lengths[row]}"
        raise FormatError(problem, offset=_lengths_at(first + row))
    if (row := _first(offsets < 0)) is not None:
        problem = f"sample {first + row} begins at a negative byte, {offsets[row]}"
        raise FormatError(problem, offset=_offsets_at(header, first + row))
    if (row := _first(offsets[1:] < offsets[:-1])) is not None:
        problem = f"sample {first + row + 1} begins before sample {first + row}"
        raise FormatError(problem, offset=_offsets_at(header, first + row + 1))


def build_index(
    dtype: np.dtype[Any] | int,
    lengths: Sequence[int] | NDArray[np.integer[Any]],
    documents: Sequence[int] | NDArray[np.integer[Any]] | None = None,
) -> bytes:
    """The index of samples end to end. By default each is a document of its own, as in TouchNet."""
    code = dtype if isinstance(dtype, int) else dtype_code(dtype)
    if code not in DTYPES:
        raise FormatError(f"unknown dtype code {code}", offset=_CODE_OFFSET)
    wide = np.asarray(lengths)
    if (sample := _first((wide < 0) | (wide >= LENGTH_LIMIT))) is not None:
        offset = _lengths_at(sample)
        raise FormatError(f"sample {sample} has {wide[sample]} elements, an index holds int32", offset=offset)
    counts = wide.astype(np.int64)
    offsets = np.cumsum(counts) - counts
    if documents is None:
        documents = np.arange(len(counts) + 1)
    return b"".join(
        (
            _HEADER.pack(MAGIC, VERSION, code, len(counts), len(documents)),
            counts.astype(_LENGTH).tobytes(),
            (offsets * DTYPES[code].itemsize).astype(_OFFSET).tobytes(),
            np.asarray(documents, _DOCUMENT).tobytes(),
        )
    )


def dtype_code(dtype: np.dtype[Any]) -> int:
    for code, known in DTYPES.items():
        if known == dtype:
            return code
    raise FormatError(f"a .bin cannot hold {dtype.str}", offset=_CODE_OFFSET)


def complete(index: Index, bin_size: int) -> NDArray[np.bool_]:
    """Which samples lie wholly inside a .bin of this size."""
    # Subtracted rather than added: a hostile offset plus a length may pass 2**63.
    return index.offsets <= bin_size - index.sizes


def _first(found: NDArray[np.bool_]) -> int | None:
    return int(found.argmax()) if found.any() else None
