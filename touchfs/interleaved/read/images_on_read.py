"""Images of a sample, read while its tar is open (`materialize_on_read`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.columns import column_values, with_column
from touchfs.interleaved.items.materialize import materialize
from touchfs.interleaved.read.item_tar import ItemTar
from touchfs.interleaved.read.sample_rows import ItemRow


def read_images(
    tar: ItemTar, rows: Sequence[ItemRow], table: pa.Table, max_decoded: int, storage_options: Mapping[str, Any]
) -> tuple[pa.Table, int]:
    """Return the table of these rows with the bytes of images, and how many frames were encoded again.

    An image whose member was not found stays without bytes, and without an error. If a frame cannot be taken out of its
    file, the row has an error and the whole file, as NeMo Curator has it.
    """
    plain = [None if row.image is None else tar.source_ref(row.image, row.frame, plain=True) for row in rows]
    batch = InterleavedBatch(
        with_column(table, "source_ref", pa.array(plain, pa.string())),
        source_files=(tar.plain_path,),
        storage_options={tar.path: storage_options} if storage_options else {},
    )
    done = materialize(batch, max_decoded=max_decoded)
    found = with_column(done.table, "source_ref", table["source_ref"])
    errors = column_values(found, "materialize_error")
    lost = [i for i, row in enumerate(rows) if errors[i] is not None and row.frame is not None]
    if lost:
        contents = column_values(found, "binary_content")
        for i in lost:
            contents[i] = _whole_file(tar, rows[i], max_decoded)
        found = with_column(found, "binary_content", pa.array(contents, pa.large_binary()))
    errors = [None if row.image is None else error for row, error in zip(rows, errors, strict=True)]
    return with_column(found, "materialize_error", pa.array(errors, pa.string())), done.reencoded_frames


def _whole_file(tar: ItemTar, row: ItemRow, max_decoded: int) -> bytes | None:
    """The file that the frame of a row could not be taken out of; None if it is over the limit."""
    if row.image is None or row.image.size > max_decoded:
        return None
    return tar.read(row.image, max_decoded)
