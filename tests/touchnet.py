"""A writer of TouchNet shards for tests, from the layout of the format and with nothing of touchfs in it."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

UINT8, INT16, INT32, UINT16 = 1, 3, 4, 8
_WIDTHS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2}


def index_bytes(
    code: int, sizes: Sequence[int], offsets: Sequence[int] | None = None, /, **changed: int | bytes
) -> bytes:
    """An index of samples of these sizes in bytes. `changed` puts something else in its header."""
    if offsets is None:
        offsets = list(accumulate(sizes, initial=0))[:-1]
    said = {"magic": b"MMIDIDX\0\0", "version": 1, "code": code, "count": len(sizes), "documents": len(sizes) + 1}
    header = struct.pack("<9sQBQQ", *(said | changed).values())
    lengths = struct.pack(f"<{len(sizes)}i", *(size // _WIDTHS[code] for size in sizes))
    documents = range(len(sizes) + 1)
    return header + lengths + struct.pack(f"<{len(sizes)}q", *offsets) + struct.pack(f"<{len(documents)}q", *documents)


def write_modality(directory: Path, name: str, code: int, samples: Sequence[bytes]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.bin").write_bytes(b"".join(samples))
    (directory / f"{name}.idx").write_bytes(index_bytes(code, [len(sample) for sample in samples]))


def write_shard(directory: Path, **modalities: tuple[int, Sequence[bytes]]) -> Path:
    """`write_shard(path, audio=(INT16, […]), metainfo=(UINT8, […]))`"""
    for name, (code, samples) in modalities.items():
        write_modality(directory, name, code, samples)
    return directory


def write_speech(directory: Path, samples: Sequence[tuple[Any, bytes]]) -> Path:
    """Metainfo, as the stored bytes or as what they are the JSON of, and PCM."""
    told = [metainfo if isinstance(metainfo, bytes) else as_json(metainfo) for metainfo, _ in samples]
    return write_shard(directory, audio=(INT16, [pcm for _, pcm in samples]), metainfo=(UINT8, told))


def as_json(value: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair can only be spelt out
        return json.dumps(value).encode()
