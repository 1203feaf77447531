"""Write an .idxpack of version 2, byte for byte as Lhotse does for the same indexes. `layout` describes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.idxpack.layout import (
    COLLECTION,
    COUNT,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    OFFSET,
    SEGMENT,
    SEQUENCE,
    VERSION,
    SegmentContent,
    digest,
)


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """A collection to write. `source_spec` is the declaration of its paths: any JSON value."""

    role: str
    kind: str
    source_spec: object
    paths: Sequence[str]
    content: SegmentContent = SegmentContent.OFFSETS  # or PATHS

    @property
    def key(self) -> bytes:
        """The SHA-256 of kind, role and declaration, as Lhotse computes it."""
        identity = {"kind": self.kind, "role": self.role, "source_spec": self.source_spec}
        text = json.dumps(identity, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode()).digest()


def build_pack(specs: Sequence[CollectionSpec], offsets: Mapping[str, NDArray[np.int64]]) -> Iterator[bytes]:
    """Yield the bytes of a pack of version 2 in pieces. `offsets` has the offsets of each indexed path; the last one is
    the size of its file.

    Raises FormatError for repeated keys, arrays, or offsets that do not ascend.
    """
    if len({spec.key for spec in specs}) != len(specs) or any(spec.content is SegmentContent.ARRAY for spec in specs):
        raise FormatError("an index pack of version 2 has each key once, and no arrays", offset=0)
    strings = bytearray()
    places: dict[bytes, int] = {}

    def place(text: str) -> tuple[int, int]:
        encoded = text.encode()
        if encoded not in places:
            places[encoded] = len(strings)
            strings.extend(encoded)
        return places[encoded], len(encoded)

    ordinals: dict[tuple[str, SegmentContent], int] = {}
    payloads: list[bytes] = []
    sequences: list[tuple[int, int]] = []
    collections = []
    for spec in specs:
        first, samples = len(sequences), 0
        for path in spec.paths:
            segment = ordinals.setdefault((path, spec.content), len(ordinals))
            if segment == len(payloads):
                payloads.append(
                    COUNT.pack(0) if spec.content is SegmentContent.PATHS else _payload(path, offsets[path])
                )
            samples += len(payloads[segment]) // OFFSET.itemsize - 1
            sequences.append((segment, samples))
        collections.append((spec.key, first, len(spec.paths), samples, *place(spec.kind), int(spec.content)))
    paths = [place(path) for path, _ in ordinals]

    sequences_at = HEADER_SIZE + len(collections) * COLLECTION.itemsize
    segments_at = sequences_at + len(sequences) * SEQUENCE.itemsize
    strings_at = segments_at + len(payloads) * SEGMENT.itemsize
    payload_at = strings_at + len(strings)
    payload_at += -payload_at % OFFSET.itemsize
    at = payload_at
    segments = []
    for (_, content), (path_at, path_size), payload in zip(ordinals, paths, payloads, strict=True):
        count, source_size = len(payload) // OFFSET.itemsize, COUNT.unpack(payload[-OFFSET.itemsize :])[0]
        row = (strings_at + path_at, at, path_size, int(content), count, source_size, len(payload), crc32(payload), 0)
        segments.append(row)
        at += len(payload)
    counts = (len(collections), sequences_at, len(sequences), segments_at, len(payloads), strings_at, len(strings))
    header = (
        MAGIC,
        VERSION,
        HEADER_SIZE,
        HEADER_SIZE,
        *counts,
        payload_at,
        at - payload_at,
        digest((spec.key, spec.content, [path.encode() for path in spec.paths]) for spec in specs),
    )
    yield HEADER.pack(*header).ljust(HEADER_SIZE, b"\0")
    collection_table = np.array(collections, COLLECTION)
    collection_table["kind"] += np.uint64(strings_at)
    yield collection_table.tobytes()
    yield np.array(sequences, SEQUENCE).tobytes()
    yield np.array(segments, SEGMENT).tobytes()
    yield bytes(strings).ljust(payload_at - strings_at, b"\0")
    yield from payloads


def _payload(path: str, offsets: NDArray[np.int64]) -> bytes:
    if len(offsets) == 0 or offsets[0] < 0 or (offsets[1:] < offsets[:-1]).any():
        raise FormatError(f"the offsets of {path} do not ascend to its size", offset=0)
    return offsets.astype(OFFSET).tobytes()
