"""Samples as a table: a row for each, as pyarrow's and pandas' users want them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from touchfs.dataset.sample import Sample
from touchfs.errors import MissingExtraError

if TYPE_CHECKING:
    import pyarrow

# Rows that are made at a time.
_ROWS = 1024


def arrow_table(samples: Iterable[Sample], files: Sequence[str]) -> pyarrow.Table:
    """Return a table with a row for each sample: key, shard, ordinal, duration in seconds, text, json, and `files`.

    Raises MissingExtraError without pyarrow.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("tables need pyarrow: pip install 'touchfs[arrow]'") from error
    schema = pyarrow.schema(
        {
            "key": pyarrow.string(),
            "shard": pyarrow.string(),
            "ordinal": pyarrow.int64(),
            "duration": pyarrow.float64(),
            "text": pyarrow.string(),
            "json": pyarrow.string(),
            **dict.fromkeys(files, pyarrow.binary()),
        }
    )
    batches, left = [], iter(samples)
    while rows := [_row(sample, files) for sample in islice(left, _ROWS)]:
        batches.append(pyarrow.RecordBatch.from_pylist(rows, schema))
    return pyarrow.Table.from_batches(batches, schema)


def _row(sample: Sample, files: Sequence[str]) -> dict[str, Any]:
    return {
        "key": sample.key,
        "shard": sample.shard,
        "ordinal": sample.ordinal,
        "duration": sample.known_duration,
        "text": sample.text,
        "json": sample["json"].decode("utf-8", "replace") if "json" in sample else None,
        **{name: sample.get(name) for name in files},
    }
