"""`catalog.arrow`: a table of all utterances as an Arrow IPC file, a row for each, sorted by id.

    id, recording       ids as in all other lists
    shard, key          the names of the shard and of the sample
    segment             number of the segment in its sample
    path                file with the utterance's audio alone
    recording_path      file with the whole recording, in which the utterance begins at `start`
    start, duration     seconds
    offset, length      the same in samples per channel
    rate, channels      Hz, and the number of channels
    text, speaker, language    empty if there is none

A batch has the records of `BATCH_BLOCKS` blocks. Its size follows from the bytes of its texts, which are counted when
the lists are made, so it is built when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.extent import Content, Memory, Rope
from touchfs.form.computed import ComputedContent
from touchfs.format.arrow.build import build_batch, build_batch_message, build_end, build_head, padded_size
from touchfs.format.arrow.mapped_columns import BinaryColumn, ColumnType
from touchfs.lists.records import UtteranceRecord
from touchfs.manifest.entry import seconds

BATCH_BLOCKS = 64

_TEXTS: Mapping[str, Callable[[UtteranceRecord], str | None]] = {
    "id": lambda record: record.listed.utterance.id,
    "recording": lambda record: record.listed.utterance.recording.id,
    "shard": lambda record: record.listed.shard,
    "key": lambda record: record.listed.key,
    "path": lambda record: record.listed.path,
    "recording_path": lambda record: record.listed.utterance.recording.path,
    "text": lambda record: record.listed.utterance.text,
    "speaker": lambda record: record.listed.utterance.speaker,
    "language": lambda record: record.listed.utterance.language,
}
_NUMBERS: Mapping[str, tuple[str, Callable[[UtteranceRecord], float]]] = {
    "segment": ("int32", lambda record: record.listed.number),
    "start": ("float64", lambda record: _seconds(record, record.listed.utterance.offset)),
    "duration": ("float64", lambda record: _seconds(record, record.listed.utterance.length)),
    "offset": ("int64", lambda record: record.listed.utterance.offset),
    "length": ("int64", lambda record: record.listed.utterance.length),
    "rate": ("int64", lambda record: record.listed.utterance.recording.rate),
    "channels": ("int32", lambda record: record.listed.utterance.recording.channels),
}
_PATHS = ("path", "recording_path")
COLUMNS: dict[str, ColumnType] = {
    **dict.fromkeys(("id", "recording", "shard", "key"), "utf8"),
    "segment": "int32",
    **dict.fromkeys(_PATHS, "utf8"),
    **{name: kind for name, (kind, _) in _NUMBERS.items() if name != "segment"},
    **dict.fromkeys(("text", "speaker", "language"), "utf8"),
}
TEXTS = tuple(_TEXTS)


def text_sizes(records: Iterable[UtteranceRecord]) -> list[int]:
    """The bytes of all `TEXTS` of these records."""
    listed = list(records)
    return [sum(len(_encoded(value(record))) for record in listed) for value in _TEXTS.values()]


class CatalogSizes:
    """The sizes of a catalog's batches.

    `rows` is the number of records before each block and in all; `texts` the bytes of each of `TEXTS`, likewise.
    """

    def __init__(self, rows: NDArray[np.int64], texts: Sequence[NDArray[np.int64]], prefix: str) -> None:
        bounds = np.unique(np.append(np.arange(0, len(rows) - 1, BATCH_BLOCKS), len(rows) - 1))
        self.blocks = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
        counts = np.diff(rows[bounds])
        below = len(_encoded(prefix))
        texts_of = {
            name: np.diff(table[bounds]) + (counts * below if name in _PATHS else 0)
            for name, table in zip(TEXTS, texts, strict=True)
        }
        body = np.zeros(len(counts), np.int64)
        for name, kind in COLUMNS.items():
            if kind == "utf8":
                body += _padded((counts + 1) * 4) + _padded(texts_of[name])
            else:
                body += _padded(counts * np.dtype(kind).itemsize)
        # Each column has a buffer for nulls, which is empty, and one of values; texts have one of offsets, too.
        message = len(build_batch_message(len(COLUMNS), 0, [0] * (2 * len(COLUMNS) + len(TEXTS))))
        self._bodies = [(message, size) for size in body.tolist()]
        self.batches = [message + size for message, size in self._bodies]
        self.head = build_head(COLUMNS, {})
        self.end = build_end(COLUMNS, {}, self._bodies)

    @property
    def size(self) -> int:
        return len(self.head) + sum(self.batches) + len(self.end)


def catalog_content(sizes: CatalogSizes, records: Callable[[int, int], Iterable[UtteranceRecord]]) -> Content:
    """The content of the file. `records` returns the records of a range of blocks."""
    parts: list[Content] = [Memory(sizes.head)]
    for size, (first, last) in zip(sizes.batches, sizes.blocks, strict=True):
        parts.append(ComputedContent(size, size, partial(_render, records, first, last)))
    return Rope([*parts, Memory(sizes.end)])


def _render(
    records: Callable[[int, int], Iterable[UtteranceRecord]], first: int, last: int, offset: int, length: int
) -> bytes:
    listed = list(records(first, last))
    batch: dict[str, Any] = {
        name: BinaryColumn.of(_encoded(value(record)) for record in listed) for name, value in _TEXTS.items()
    }
    for name, (kind, number) in _NUMBERS.items():
        batch[name] = np.fromiter(map(number, listed), kind, len(listed))
    message, buffers = build_batch(COLUMNS, {name: batch[name] for name in COLUMNS})
    return b"".join([message, *(bytes(each).ljust(padded_size(len(each)), b"\0") for each in buffers)])


def _encoded(text: str | None) -> bytes:
    """UTF-8. In a prefix, bytes that are not UTF-8 become question marks."""
    return (text or "").encode("utf-8", "replace")


def _seconds(record: UtteranceRecord, samples: int) -> float:
    return seconds(samples, record.listed.utterance.recording.rate)


def _padded(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return sizes + -sizes % padded_size(1)
