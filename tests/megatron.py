"""A writer of Megatron-LM and fairseq indexes for tests, from their layouts and with nothing of touchfs in it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

UINT8, INT32, FLOAT_6, FLOAT_7, UINT16, UINT64 = 1, 4, 6, 7, 8, 10

JPEG = bytes.fromhex("ffd8ffe000104a46494600010100")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(13)


def begins(sizes: Sequence[int]) -> list[int]:
    return list(accumulate(sizes, initial=0))[:-1]


def index_bytes(
    code: int,
    lengths: Sequence[int],
    offsets: Sequence[int],
    documents: Sequence[int] | None = None,
    modes: Sequence[int] | None = None,
) -> bytes:
    """Megatron-LM's. By default each sequence is a document."""
    starts = range(len(lengths) + 1) if documents is None else documents
    return b"".join(
        (
            struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, code, len(lengths), len(starts)),
            struct.pack(f"<{len(lengths)}i", *lengths),
            struct.pack(f"<{len(offsets)}q", *offsets),
            struct.pack(f"<{len(starts)}q", *starts),
            b"" if modes is None else struct.pack(f"<{len(modes)}b", *modes),
        )
    )


def fairseq_bytes(code: int, lengths: Sequence[int], offsets: Sequence[int]) -> bytes:
    return (
        struct.pack("<9sQBQ", b"MMIDIDX\0\0", 1, code, len(lengths))
        + struct.pack(f"<{len(lengths)}i", *lengths)
        + struct.pack(f"<{len(offsets)}q", *offsets)
    )


def write_prefix(
    prefix: Path,
    code: int,
    sequences: Sequence[NDArray[Any]],
    documents: Sequence[int] | None = None,
    modes: Sequence[int] | None = None,
    *,
    fairseq: bool = False,
) -> str:
    """The path of the index."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    data = [sequence.tobytes() for sequence in sequences]
    lengths, offsets = [len(sequence) for sequence in sequences], begins([len(each) for each in data])
    index = fairseq_bytes(code, lengths, offsets) if fairseq else index_bytes(code, lengths, offsets, documents, modes)
    Path(f"{prefix}.bin").write_bytes(b"".join(data))
    Path(f"{prefix}.idx").write_bytes(index)
    return f"{prefix}.idx"


def packed(image: bytes) -> NDArray[np.int32]:
    """An image file as preprocess_mmdata.py stores it."""
    pad = -len(image) % 4
    return np.frombuffer(struct.pack("<i", pad) + image + bytes(pad), np.int32)


def tokens(*numbers: int, dtype: str = "<i4") -> NDArray[Any]:
    return np.array(numbers, dtype)


def split(prefix: str, sizes: Sequence[int], total: int) -> None:
    """Replace PREFIX.bin by pieces of these sizes, and the last of what is left."""
    whole = Path(f"{prefix}.bin")
    data = whole.read_bytes()
    whole.unlink()
    starts = [*begins([*sizes, 0]), len(data)]
    for number, (start, end) in enumerate(pairwise(starts)):
        Path(f"{prefix}-{number:05d}-of-{total:05d}.bin").write_bytes(data[start:end])
