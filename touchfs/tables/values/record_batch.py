"""Record batches of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow


def record_batch(names: Sequence[str], arrays: Sequence[pyarrow.Array], rows: int) -> pyarrow.RecordBatch:
    """Columns as a batch, which has rows even without columns."""
    import pyarrow

    if not names:
        return pyarrow.RecordBatch.from_struct_array(pyarrow.array([{}] * rows, pyarrow.struct([])))
    return pyarrow.RecordBatch.from_arrays(arrays, names)
