"""The keys of a table's rows as one Arrow array: a table may have millions of rows, so none has an object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from touchfs.core.extras import load_pyarrow

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, slots=True, eq=False)
class RowKeys:
    """The keys of rows. `array` is of `large_string`, null where a row has no key. No key is empty."""

    array: pyarrow.Array

    @classmethod
    def of(cls, values: pyarrow.Array | Sequence[Any]) -> RowKeys:
        """The keys that texts or integers are. Null and "" are no keys."""
        arrow = load_pyarrow()
        import pyarrow.compute as compute

        texts = arrow.array(values).cast(arrow.large_string())
        return cls(compute.if_else(compute.equal(texts, ""), arrow.scalar(None, texts.type), texts))

    @classmethod
    def joined(cls, parts: Iterable[RowKeys]) -> RowKeys:
        """The keys of several batches of rows as one."""
        arrow = load_pyarrow()
        return cls(arrow.concat_arrays([arrow.array([], arrow.large_string()), *(part.array for part in parts)]))

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, row: int) -> str | None:
        key: str | None = self.array[row].as_py()
        return key

    @property
    def shown(self) -> pyarrow.Array:
        """The keys that rows are shown under: the ordinal in 8 digits where a row has none."""
        if not self.array.null_count:
            return self.array
        arrow = load_pyarrow()
        import pyarrow.compute as compute

        ordinals = arrow.array(np.arange(len(self))).cast(arrow.large_string())
        return compute.coalesce(self.array, compute.utf8_lpad(ordinals, 8, "0"))

    @property
    def with_dots(self) -> list[str]:
        """The keys that contain a dot."""
        import pyarrow.compute as compute

        keys: list[str] = self.array.filter(compute.match_substring(self.array, ".")).to_pylist()
        return keys
