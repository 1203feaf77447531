"""The index of a .bin file: MMIDIDX version 1, as TouchNet, Megatron-LM and fairseq write it.

The .bin is the samples' elements end to end, with nothing between them. Beside it the .idx says of which type the
elements are, how many each sample has, at which byte it begins, and where documents (runs of samples) begin.

    TouchNet, Megatron-LM       34-byte header, lengths, offsets, documents
    Megatron-LM, multimodal     the same, then a mode (int8) a sample: 0 text, 1 an image
    fairseq                     26-byte header without the count of documents, lengths, offsets

Nothing in the header tells them apart, but their sizes do: so the file must be exactly as long as its counts say. (One
of Megatron-LM cut off can be as long as one of fairseq, whose samples therefore must be end to end.) Where the tools
disagree or failed, the byte offsets are believed: codes 6 and 7 are float32 in one tool and float64 in another; and
NumPy before version 2 wrote a length of 2**31 or more as a negative one. Of the .bin only its size is asked for;
`complete` judges the samples by it.

Source: `IndexWriter` in megatron/core/datasets/indexed_dataset.py and in touchnet/data/dataset.py,
`MMapIndexedDataset` in fairseq/data/indexed_dataset.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError
from touchfs.extent import Buffer, Plan

# What is written. 6 and 7 are what Megatron-LM has meant by them since 2023.
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
# What is read, too: fairseq has them, and DeepSpeed under Megatron-LM's header.
_KNOWN_DTYPES = {**DTYPES, 9: np.dtype("<u4"), 10: np.dtype("<u8")}
_FAIRSEQ_DTYPES = {**_KNOWN_DTYPES, 7: np.dtype("<f8")}

MAGIC = b"MMIDIDX\0\0"
VERSION = 1

# magic, version, dtype code, count of samples N; and, but for fairseq, entries of the document array M
_FAIRSEQ_HEADER = struct.Struct("<9sQBQ")
_HEADER = struct.Struct("<9sQBQQ")
HEADER_SIZE = _HEADER.size
_VERSION_OFFSET = 9
_CODE_OFFSET = 17
_COUNTS_OFFSET = 18
# The arrays that follow, unaligned: lengths in elements [N], byte offsets into the .bin [N], documents [M], modes [N]
_LENGTH = np.dtype("<i4")
_OFFSET = np.dtype("<i8")
_DOCUMENT = np.dtype("<i8")
_MODE = np.dtype("i1")

# int32: 37 hours of 16 kHz audio, 2 GiB of bytes
LENGTH_LIMIT = 2**31
_WRAP = 2**32

# How many entries `scan_dtype` reads at a time: nearly always the first sample tells.
_SCANNED = 1024

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
    documents: NDArray[np.int64]  # as stored; see `document_starts`
    modes: NDArray[np.int8] | None

    @property
    def sizes(self) -> NDArray[np.int64]:
        """In bytes."""
        return self.lengths * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True, slots=True)
class Header:
    """What an index begins with: enough to know how many samples there are, and where each one's entry is."""

    dtype: np.dtype[Any]  # of codes 6 and 7 a guess, see `scan_dtype`
    count: int
    documents: int  # entries of the document array
    size: int = HEADER_SIZE
    has_modes: bool = False


def parse_header(data: Buffer, size: int) -> Header:
    """From the first HEADER_SIZE bytes (or more) of an index file of `size` bytes."""
    for magic, refusal in _STRANGERS.items():
        if data[: len(magic)] == magic:
            raise FormatError(refusal, offset=0)
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise FormatError(f"not an index of a .bin: it begins with {bytes(data[: len(MAGIC)])!r}", offset=0)
    if len(data) < _FAIRSEQ_HEADER.size:
        raise FormatError(f"the index ends inside its header of {HEADER_SIZE} bytes", offset=len(data))
    _, version, code, count = _FAIRSEQ_HEADER.unpack_from(data)
    if version != VERSION:
        raise FormatError(f"index version {version}, only {VERSION} is known", offset=_VERSION_OFFSET)
    if code not in _KNOWN_DTYPES:
        raise FormatError(f"unknown dtype code {code}", offset=_CODE_OFFSET)
    entries = count * (_LENGTH.itemsize + _OFFSET.itemsize)
    if size == _FAIRSEQ_HEADER.size + entries:  # which all others exceed
        return Header(_FAIRSEQ_DTYPES[code], count, 0, _FAIRSEQ_HEADER.size)
    if len(data) < HEADER_SIZE:
        raise FormatError(f"the index ends inside its header of {HEADER_SIZE} bytes", offset=len(data))
    *_, documents = _HEADER.unpack_from(data)
    expected = HEADER_SIZE + entries + documents * _DOCUMENT.itemsize
    if size not in (expected, expected + count * _MODE.itemsize):
        raise FormatError(
            f"an index of {count} samples and {documents} documents has {expected} bytes, this has {size}",
            offset=_COUNTS_OFFSET,
        )
    return Header(_KNOWN_DTYPES[code], count, documents, has_modes=size > expected)


def parse_index(data: Buffer, bin_size: int | None = None) -> Index:
    """`bin_size` helps where only the end of the last sample tells its length or the type of the elements."""
    header = parse_header(data, len(data))
    count, documents_at = header.count, _offsets_at(header, header.count)
    stored = np.frombuffer(data, _LENGTH, count, _lengths_at(header, 0))
    offsets = np.frombuffer(data, _OFFSET, count, _offsets_at(header, 0)).astype(np.int64)
    documents = np.frombuffer(data, _DOCUMENT, header.documents, documents_at).astype(np.int64)
    modes_at = documents_at + header.documents * _DOCUMENT.itemsize
    modes = np.frombuffer(data, _MODE, count, modes_at).astype(np.int8) if header.has_modes else None
    gaps = _gaps(stored, offsets, bin_size)
    dtype = (_float_dtype(stored, gaps) if header.dtype.kind == "f" else None) or header.dtype
    header = replace(header, dtype=dtype)
    lengths = _recovered(stored, gaps, dtype.itemsize, ends=True).astype(np.int64)
    _check(header, 0, lengths, offsets)
    return Index(dtype, lengths, offsets, documents, modes)


def document_starts(index: Index) -> NDArray[np.int64] | None:
    """The ordinal of the first sample of each document, then N; None where each sample is a document of its own.

    So it is where the array tells nothing: there is none, it is [0], or is no ascending list of ordinals. A part of
    the samples before its first or behind its last entry is a document, too. Documents may be empty.
    """
    starts, count = index.documents, len(index)
    if len(starts) == 0 or (starts[:1] == starts).all() or starts[0] < 0 or starts[-1] > count:
        return None
    if (starts[1:] < starts[:-1]).any():
        return None
    before, behind = [0] * bool(starts[0] > 0), [count] * bool(starts[-1] < count)
    starts = np.concatenate((np.array(before, np.int64), starts, np.array(behind, np.int64)))
    return None if np.array_equal(starts, np.arange(count + 1)) else starts


_Entries = tuple[NDArray[np.signedinteger[Any]], NDArray[np.int64]]


def scan_dtype(header: Header, bin_size: int) -> Plan[Header]:
    """The header with its true dtype, where the code leaves a doubt: that of the first sample whose size tells it."""
    if header.dtype.kind == "f":
        for first in range(0, header.count, _SCANNED):
            lengths, offsets = yield from _scan(header, first, min(_SCANNED, header.count - first))
            dtype = _float_dtype(lengths, _gaps(lengths, offsets, bin_size))
            if dtype is not None:
                return replace(header, dtype=dtype)
    return header


def scan_entries(header: Header, first: int, count: int, bin_size: int | None = None) -> Plan[_Entries]:
    """Lengths (in elements) and offsets (in bytes) of the samples `[first, first + count)`, and nothing else read."""
    stored, offsets = yield from _scan(header, first, count)
    gaps = _gaps(stored, offsets, bin_size)
    lengths = _recovered(stored, gaps, header.dtype.itemsize, ends=first + count == header.count)
    _check(header, first, lengths, offsets)
    return lengths, offsets[:count]


def _scan(header: Header, first: int, count: int) -> Plan[_Entries]:
    """Entries as stored, and one more offset if there is one: the last sample's end."""
    beyond = int(first + count < header.count)
    lengths = np.frombuffer((yield _lengths_at(header, first), count * _LENGTH.itemsize), _LENGTH)
    offsets = np.frombuffer((yield _offsets_at(header, first), (count + beyond) * _OFFSET.itemsize), _OFFSET)
    return lengths, offsets


def _lengths_at(header: Header, sample: int) -> int:
    return header.size + sample * _LENGTH.itemsize


def _offsets_at(header: Header, sample: int) -> int:
    return _lengths_at(header, header.count) + sample * _OFFSET.itemsize


def _gaps(
    lengths: NDArray[np.signedinteger[Any]], offsets: NDArray[np.int64], bin_size: int | None
) -> NDArray[np.int64]:
    """From the beginning of each sample to that of the next; of the last one, to the end of the .bin, if known."""
    ends = [bin_size] if len(offsets) == len(lengths) and len(offsets) and bin_size is not None else []
    bounds = np.append(offsets, np.array(ends, np.int64))
    return bounds[1:] - bounds[:-1]


def _float_dtype(lengths: NDArray[np.signedinteger[Any]], gaps: NDArray[np.int64]) -> np.dtype[Any] | None:
    counts = lengths[: len(gaps)].astype(np.int64)
    row = _first((counts > 0) & ((gaps == 4 * counts) | (gaps == 8 * counts)))
    return None if row is None else np.dtype(f"<f{gaps[row] // counts[row]}")


def _recovered(
    stored: NDArray[np.signedinteger[Any]], gaps: NDArray[np.int64], width: int, *, ends: bool
) -> NDArray[np.signedinteger[Any]]:
    """The lengths, negative ones by what the offsets say, if the overflow makes that into what is stored.

    Of the very last sample (`ends`) no offset may tell; then it overflowed once. Others stay negative.
    """
    negative = np.flatnonzero(stored < 0)
    if not len(negative):
        return stored
    lengths = stored.astype(np.int64)
    told = np.full(len(lengths), -1)
    told[: len(gaps)] = gaps // width
    found = negative[(told[negative] >= 0) & ((told[negative] - lengths[negative]) % _WRAP == 0)]
    if ends and lengths[-1] < 0:
        lengths[-1] += _WRAP
    lengths[found] = told[found]
    return lengths


def _check(header: Header, first: int, lengths: NDArray[np.signedinteger[Any]], offsets: NDArray[np.int64]) -> None:
    """Refuse what no writer wrote, in the entries of the samples from `first` on."""
    if (row := _first(lengths < 0)) is not None:
        problem = f"sample {first + row} has a negative length, {lengths[row]}"
        raise FormatError(problem, offset=_lengths_at(header, first + row))
    if (row := _first(offsets < 0)) is not None:
        problem = f"sample {first + row} begins at a negative byte, {offsets[row]}"
        raise FormatError(problem, offset=_offsets_at(header, first + row))
    if (row := _first(offsets[1:] < offsets[:-1])) is not None:
        problem = f"sample {first + row + 1} begins before sample {first + row}"
        raise FormatError(problem, offset=_offsets_at(header, first + row + 1))
    if header.size == _FAIRSEQ_HEADER.size:
        ends = offsets[: len(lengths)] + lengths.astype(np.int64) * header.dtype.itemsize
        begin = offsets[:1] if first else np.zeros(1, np.int64)
        if (row := _first(offsets != np.append(begin, ends)[: len(offsets)])) is not None:
            problem = f"cut off? sample {first + row} does not begin where the one before it ends"
            raise FormatError(problem, offset=_offsets_at(header, first + row))


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
        offset = HEADER_SIZE + sample * _LENGTH.itemsize
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
