"""Samples as a table: a row for each, as pyarrow's and pandas' users want them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from touchfs.core.extras import load_pyarrow
from touchfs.dataset.sample import Sample

if TYPE_CHECKING:
    import pyarrow

# Rows that are made at a time.
_ROWS = 1024


def arrow_table(samples: Iterable[Sample], files: Sequence[str]) -> pyarrow.Table:
    """Return a table with a row for each sample: key, shard, ordinal, duration in seconds, text, json, and `files`.

    Raises MissingExtraError without pyarrow.
    """
    pa = load_pyarrow()
    schema = pa.schema(
        {
            "key": pa.string(),
            "shard": pa.string(),
            "ordinal": pa.int64(),
            "duration": pa.float64(),
            "text": pa.string(),
            "json": pa.string(),
            **dict.fromkeys(files, pa.binary()),
        }
    )
    batches, left = [], iter(samples)
    while rows := [_row(sample, files) for sample in islice(left, _ROWS)]:
        batches.append(pa.RecordBatch.from_pylist(rows, schema))
    return pa.Table.from_batches(batches, schema)


def _row(sample: Sample, files: Sequence[str]) -> dict[str, Any]:
    name = sample.json_name
    return {
        "key": sample.key,
        "shard": sample.shard,
        "ordinal": sample.ordinal,
        "duration": sample.known_duration,
        "text": sample.text,
        "json": sample[name].decode("utf-8", "replace") if name is not None else None,
        **{name: sample.get(name) for name in files},
    }
