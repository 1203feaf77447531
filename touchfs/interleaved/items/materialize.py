"""Materialisation: images get their bytes from where their locators say.

Each piece of a file is read once for all rows that mean it (`touchfs.interleaved.fetch.pieces` says what a locator
means), and frames of a TIFF are cut out of it. A row whose bytes cannot be had keeps none, and gets an error. The texts
of errors are those of NeMo Curator 1.4, where it has one for the case.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from touchfs.core.errors import FormatError
from touchfs.core.urls import shown
from touchfs.interleaved.fetch import fetch_pieces
from touchfs.interleaved.fetch.pieces import ItemPiece, find_piece
from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.columns import binary_array, column_values, with_column
from touchfs.interleaved.items.file_column import from_file_columns
from touchfs.interleaved.items.sizes import located_bytes, row_bytes
from touchfs.interleaved.items.split import split_by_size
from touchfs.interleaved.items.tiff_frames import cut_frames
from touchfs.interleaved.layout.columns import IMAGE
from touchfs.interleaved.layout.file_group import verify_checksum
from touchfs.interleaved.layout.source_ref import SourceRef, parse_source_ref
from touchfs.limits import LIMITS, too_large
from touchfs.source.named.locations import Locations, StorageOptions

log = logging.getLogger(__name__)


def materialize(
    batch: InterleavedBatch,
    locations: Iterable[str] = (),
    storage_options: StorageOptions | None = None,
    only_missing_binary: bool = True,
    content_types: Collection[str] | None = None,
    max_decoded: int = LIMITS.decoded,
) -> InterleavedBatch:
    """Return the batch with the bytes of its images in `binary_content`, or an error in `materialize_error`.

    `locations` are paths and URLs below which data may name files, besides those beside the batch's `source_files`.
    `storage_options` maps some of them to options of fsspec, and is added to the batch's. Rows that have bytes are left
    as they are with `only_missing_binary`, and so are rows of other `content_types` if these are given. Success clears
    an error of before. No image may have over `max_decoded` bytes, nor may all that rows have again of other rows.
    """
    options = {**batch.storage_options, **(storage_options or {})}
    places = Locations(batch.source_files, locations, options)
    table = from_file_columns(batch.table)
    rows = _wanted_rows(table, only_missing_binary, content_types)
    if not rows:
        return batch.replaced(table)
    result = _Materialized(table, max_decoded)
    pieces = result.plan(rows)
    for fetched in fetch_pieces(pieces, places, max_decoded):
        if fetched.data is None:
            result.fail(pieces[fetched.piece], fetched.error or "")
        else:
            result.fill(fetched.piece, fetched.data, pieces[fetched.piece])
    if result.unchecked:
        log.warning("%d checksums of images are not checked: they are of ETAG or CRC32C", result.unchecked)
    reencoded = batch.reencoded_frames + result.reencoded
    return replace(batch, data=result.table(), reencoded_frames=reencoded)


def materialized_parts(
    batch: InterleavedBatch,
    max_bytes: int,
    locations: Iterable[str] = (),
    max_decoded: int = LIMITS.decoded,
) -> Iterator[InterleavedBatch]:
    """Yield the batch materialised in parts of whole samples, of at most `max_bytes` each as far as locators say sizes.

    So a batch of locators, which is small, does not become the bytes of a whole tar in memory. A sample may be larger.
    """
    table = from_file_columns(batch.table)
    sizes = row_bytes(table) + located_bytes(table)
    for part in split_by_size(table, max_bytes, sizes=sizes):
        yield materialize(batch.replaced(part), locations, max_decoded=max_decoded)


def _wanted_rows(table: pa.Table, only_missing: bool, content_types: Collection[str] | None) -> list[int]:
    names = table.column_names
    modalities = table["modality"].to_pylist() if "modality" in names else []
    rows = [row for row, modality in enumerate(modalities) if modality == IMAGE]
    if only_missing and "binary_content" in names:
        is_null = table["binary_content"].is_null().to_pylist()
        rows = [row for row in rows if is_null[row]]
    if content_types is not None and "content_type" in names:
        types = table["content_type"].to_pylist()
        rows = [row for row in rows if types[row] in content_types]
    return rows


class _Materialized:
    """The columns that materialising changes, as lists with a value for each row.

    A few bytes of JSON can name a large image once more, and a column has the bytes of each row. So there is a limit.
    """

    def __init__(self, table: pa.Table, max_decoded: int) -> None:
        self._table = table
        self._max_decoded = max_decoded
        self._left = max_decoded  # bytes that rows may still have again
        self._contents: list[Any] = column_values(table, "binary_content")
        self._errors: list[str | None] = column_values(table, "materialize_error")
        self._refs: dict[int, SourceRef] = {}
        self.reencoded = 0
        self.unchecked = 0

    def plan(self, rows: Iterable[int]) -> dict[ItemPiece, list[int]]:
        """Return the pieces to read, with their rows. Rows whose locators mean none get an error."""
        texts = column_values(self._table, "source_ref")
        pieces: defaultdict[ItemPiece, list[int]] = defaultdict(list)
        for row in rows:
            try:
                ref = parse_source_ref(texts[row])
                piece = find_piece(ref)
            except FormatError as error:
                self._errors[row] = error.message
                continue
            if piece is None:
                self._errors[row] = "missing path"
            else:
                self._refs[row] = ref
                pieces[piece].append(row)
        return pieces

    def fail(self, rows: Iterable[int], error: str) -> None:
        for row in rows:
            self._errors[row] = error

    def fill(self, piece: ItemPiece, data: bytes, rows: list[int]) -> None:
        """Give rows the bytes of their piece, or frames of it."""
        numbers = {ref.frame_index for row in rows if (ref := self._refs[row]).frame_index is not None}
        cut = cut_frames(data, numbers, self._max_decoded) if numbers else {}
        given: set[int] = set()  # ids of `data` and of what is in `cut`, of which several numbers may have the same
        for row in rows:
            ref = self._refs[row]
            found, self._errors[row] = data, None
            if (number := ref.frame_index) is not None:
                frame = cut[number]
                if frame is None:
                    self._errors[row] = f"failed to extract frame {number} from '{piece.member or shown(piece.path)}'"
                    continue
                found = frame.data
                self.reencoded += frame.is_reencoded
            if ref.checksum is not None:
                try:
                    if not verify_checksum(ref.checksum, data):
                        self.unchecked += 1
                except FormatError as error:
                    self._errors[row] = error.message
                    continue
            if id(found) in given:
                self._left -= len(found)
                if self._left < 0:
                    self._errors[row] = f"{piece.name} repeated: {too_large(self._max_decoded)}"
                    continue
            given.add(id(found))
            self._contents[row] = found

    def table(self) -> pa.Table:
        table = with_column(self._table, "binary_content", binary_array(self._contents))
        return with_column(table, "materialize_error", pa.array(self._errors, pa.string()))
