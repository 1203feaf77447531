"""The index of a .bin file: MMIDIDX version 1, as TouchNet, Megatron-LM and fairseq write it.

The .bin has the samples' elements end to end, with nothing between them. The .idx has the type of the elements, the
number of elements and first byte of each sample, and the first samples of documents (runs of samples).

    TouchNet, Megatron-LM       34-byte header, lengths, offsets, documents
    Megatron-LM, multimodal     the same, then a mode (int8) per sample: 0 text, 1 image
    fairseq                     26-byte header without the count of documents, lengths, offsets

The header does not distinguish them, but the file's size does: it must match the counts exactly. The first and last
entries are checked too, because a truncated Megatron-LM index can have the size of a fairseq one. Codes 6 and 7 are
float32 in one tool and float64 in another: the byte offsets decide. Samples whose lengths and offsets contradict each
other are damaged (`touchfs.containers.touchnet.layout.mmidx_entries`). Of the .bin only the size is used.

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

from touchfs.containers.touchnet.layout.mmidx_entries import Entries, check_entries, float_width
from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Reads, T
from touchfs.format.idx import MAGIC

# The codes that are written. 6 and 7 have the meaning that Megatron-LM has used since 2023.
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
# The codes that are read: fairseq has the additional ones, and DeepSpeed too, with Megatron-LM's header.
_KNOWN_DTYPES = {**DTYPES, 9: np.dtype("<u4"), 10: np.dtype("<u8")}
_FAIRSEQ_DTYPES = {**_KNOWN_DTYPES, 7: np.dtype("<f8")}

VERSION = 1

# magic, version, dtype code, number of samples N; and, except in fairseq, number of entries of the document array M
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

# So many samples may be empty, or half of them: of an index in a file with holes the counts cost nothing.
EMPTY_MAX = 1 << 20

# Number of entries read at a time to find the size of a float: nearly always the first sample decides.
_SCANNED = 1024
# Number of entries of a whole index checked at a time, so that this takes little memory compared to the index.
_PARSED = 1 << 16

_FOREIGN = {
    b"TNTIDX\0\0": "this is a legacy TNTIDX index, which Megatron-LM dropped in 2023: convert it with an old version",
    b"v1.": "this is a DALI index of a tar (text), not the index of a .bin",
}


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """A whole index of N samples. `documents` has the ordinal of the first sample of each document, then N."""

    dtype: np.dtype[Any]
    entries: Entries
    documents: NDArray[np.int64]  # as stored; see `document_starts`
    modes: NDArray[np.int8] | None

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Sizes of the samples in bytes, shape (N,); not reliable for damaged samples."""
        return self.entries.lengths.astype(np.int64) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header of an index: the number of samples, and enough to locate the entry of each."""

    dtype: np.dtype[Any]  # a guess for codes 6 and 7, see `scan_header`
    count: int
    documents: int  # entries of the document array
    size: int = HEADER_SIZE
    has_modes: bool = False


def parse_header(data: Buffer, size: int) -> IndexHeader:
    """Parse the first HEADER_SIZE bytes (or more) of an index file of `size` bytes. Raises FormatError."""
    for magic, refusal in _FOREIGN.items():
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
    if size == _FAIRSEQ_HEADER.size + entries:  # all other formats are larger
        return IndexHeader(_FAIRSEQ_DTYPES[code], count, 0, _FAIRSEQ_HEADER.size)
    if len(data) < HEADER_SIZE:
        raise FormatError(f"the index ends inside its header of {HEADER_SIZE} bytes", offset=len(data))
    *_, documents = _HEADER.unpack_from(data)
    expected = HEADER_SIZE + entries + documents * _DOCUMENT.itemsize
    if size not in (expected, expected + count * _MODE.itemsize):
        raise FormatError(
            f"an index of {count} samples and {documents} documents has {expected} bytes, this has {size}",
            offset=_COUNTS_OFFSET,
        )
    return IndexHeader(_KNOWN_DTYPES[code], count, documents, has_modes=size > expected)


def parse_index(data: Buffer, bin_size: int) -> Index:
    """Parse a whole index of a .bin of `bin_size` bytes. Samples with contradictory entries are marked as damaged.

    Raises FormatError if it is not an index.
    """
    data = memoryview(data)
    header = _run(scan_header(parse_header(data, len(data)), bin_size), data)
    blocks = [
        _run(scan_entries(header, first, min(_PARSED, header.count - first), bin_size), data)
        for first in range(0, header.count or 1, _PARSED)
    ]
    columns = zip(*((block.lengths, block.offsets, block.damage) for block in blocks), strict=True)
    documents_at = _offsets_at(header, header.count)
    documents = np.frombuffer(data, _DOCUMENT, header.documents, documents_at).astype(np.int64)
    modes_at = documents_at + header.documents * _DOCUMENT.itemsize
    modes = np.frombuffer(data, _MODE, header.count, modes_at).astype(np.int8) if header.has_modes else None
    return Index(header.dtype, Entries(*map(np.concatenate, columns)), documents, modes)


def _run(reads: Reads[T], data: memoryview) -> T:
    try:
        offset, length = next(reads)
        while True:
            offset, length = reads.send(data[offset : offset + length])
    except StopIteration as end:
        result: T = end.value
        return result


def has_sound_documents(index: Index) -> bool:
    """Return whether the document array is valid: ascending from 0 to N, or without information, as [0]."""
    starts = index.documents
    return len(starts) < 2 or bool(starts[0] == 0 and starts[-1] == len(index) and (starts[1:] >= starts[:-1]).all())


def document_starts(index: Index) -> NDArray[np.int64] | None:
    """Return the ordinal of the first sample of each document, then N; None if each sample is its own document.

    None is also returned if the array has no information: it is missing, [0], or not an ascending list of ordinals.
    Samples before its first or after its last entry are a document too. Documents may be empty.
    """
    starts, count = index.documents, len(index)
    if len(starts) == 0 or (starts[:1] == starts).all() or starts[0] < 0 or starts[-1] > count:
        return None
    if (starts[1:] < starts[:-1]).any():
        return None
    before, behind = [0] * bool(starts[0] > 0), [count] * bool(starts[-1] < count)
    starts = np.concatenate((np.array(before, np.int64), starts, np.array(behind, np.int64)))
    return None if np.array_equal(starts, np.arange(count + 1)) else starts


def scan_header(header: IndexHeader, bin_size: int) -> Reads[IndexHeader]:
    """Complete the header from the entries: the true dtype, if the code is ambiguous.

    Reads a few bytes at both ends of the arrays, and for floats a block. Raises FormatError if the counts in the header
    do not match the arrays.
    """
    if header.count > max(EMPTY_MAX, 2 * bin_size):
        raise FormatError(
            f"an index of {header.count} samples of a .bin of {bin_size} bytes: nearly all would be empty",
            offset=_COUNTS_OFFSET,
        )
    if header.documents > max(EMPTY_MAX, 2 * header.count):
        raise FormatError(
            f"an index of {header.documents} documents of {header.count} samples: nearly all would be empty",
            offset=_COUNTS_OFFSET,
        )
    if header.dtype.kind == "f":
        header = yield from _scan_float(header, bin_size)
    if header.count:
        yield from _check_layout(header, bin_size)
    return header


def _scan_float(header: IndexHeader, bin_size: int) -> Reads[IndexHeader]:
    """Decide the size of a float by the first block of samples that is not ambiguous."""
    for first in range(0, header.count, _SCANNED):
        lengths, offsets = yield from _scan(header, first, min(first + _SCANNED, header.count))
        bounds = np.append(offsets, bin_size) if len(offsets) == len(lengths) else offsets
        width = float_width(lengths, np.diff(bounds))
        if width is not None:
            return replace(header, dtype=np.dtype(f"<f{width}"))
    return header


def _check_layout(header: IndexHeader, bin_size: int) -> Reads[None]:
    """Check that the counts in the header match the arrays. A valid index has three properties: the first sample begins
    at 0, the last one ends with the .bin, and documents are from 0 to N. A single damaged number violates one of them;
    a wrong count shifts the arrays and violates more.
    """
    count = header.count
    lengths, offsets = yield from _scan(header, 0, 2 if count > 1 else 1)
    if header.size == _FAIRSEQ_HEADER.size and count > 1 and lengths[0] and lengths[1] == offsets[1] == 0:
        # Its first two lengths are Megatron-LM's number of documents, and its second offset is the first one there.
        raise FormatError("the index is cut off: it has the size of fairseq's, and entries of Megatron-LM's")
    last_length, last_offset = yield from _scan(header, count - 1, count)
    gap = bin_size - last_offset.item()
    is_other_end = count > 1 and (gap - last_length.item() * header.dtype.itemsize) % _WRAP != 0
    is_other_document = False
    if header.documents > 1:
        at = _offsets_at(header, count)
        first = np.frombuffer((yield at, _DOCUMENT.itemsize), _DOCUMENT)
        last = np.frombuffer((yield at + (header.documents - 1) * _DOCUMENT.itemsize, _DOCUMENT.itemsize), _DOCUMENT)
        is_other_document = (first.item(), last.item()) != (0, count)
    if bool(offsets[0]) + is_other_end + is_other_document > 1:
        raise FormatError(f"its entries are not those of {count} samples", offset=_COUNTS_OFFSET)


def scan_entries(header: IndexHeader, first: int, count: int, bin_size: int) -> Reads[Entries]:
    """Read the entries of the samples `[first, first + count)`, and only these and their neighbours'.

    `header` must come from `scan_header`.
    """
    before = min(first, 1)
    stored, offsets = yield from _scan(header, first - before, min(first + count + 1, header.count))
    entries = check_entries(stored, offsets, header.dtype.itemsize, bin_size, is_start=first == before)
    return entries[before : before + count]


def _scan(header: IndexHeader, first: int, end: int) -> Reads[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """Read the lengths and offsets of the samples `[first, end)` as stored, and one more offset if there is one."""
    beyond = int(end < header.count)
    lengths = np.frombuffer((yield _lengths_at(header, first), (end - first) * _LENGTH.itemsize), _LENGTH)
    offsets_size = (end - first + beyond) * _OFFSET.itemsize
    offsets = np.frombuffer((yield _offsets_at(header, first), offsets_size), _OFFSET)
    return lengths, offsets


def _lengths_at(header: IndexHeader, sample: int) -> int:
    return header.size + sample * _LENGTH.itemsize


def _offsets_at(header: IndexHeader, sample: int) -> int:
    return _lengths_at(header, header.count) + sample * _OFFSET.itemsize


def build_index(
    dtype: np.dtype[Any] | int,
    lengths: Sequence[int] | NDArray[np.integer[Any]],
    documents: Sequence[int] | NDArray[np.integer[Any]] | None = None,
) -> bytes:
    """Return the index of samples that are end to end. `lengths` is in elements, shape (N,). By default each sample is
    its own document, as in TouchNet. Raises FormatError if a value does not fit the format.
    """
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
    """Return the code of a dtype. Raises FormatError if a .bin cannot have it."""
    for code, known in DTYPES.items():
        if known == dtype:
            return code
    raise FormatError(f"a .bin cannot hold {dtype.str}", offset=_CODE_OFFSET)


def _first(found: NDArray[np.bool_]) -> int | None:
    return int(found.argmax()) if found.any() else None
