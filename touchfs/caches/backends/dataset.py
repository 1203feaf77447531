"""The rows of a backend as a map-style dataset, for PyTorch's `DataLoader` or alone. It needs no PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

from touchfs.caches.backends.protocol import StorageBackend

Decode = Callable[[dict[str, Any]], Any]


class BackendDataset:
    """The rows of a backend by index; a negative one counts from the end. Raises IndexError for one out of range.

    An item is a row, a dict of plain values by column, or what `decode` returns for it. A `DataLoader` asks for the
    items of a batch at once, which is one `take` if the backend prefers that.
    """

    def __init__(self, backend: StorageBackend, decode: Decode | None = None) -> None:
        self.backend = backend
        self.decode = decode

    def __len__(self) -> int:
        return self.backend.num_rows

    def __getitem__(self, index: SupportsIndex) -> Any:
        row = self.backend.get_row(self._number(index))
        return row if self.decode is None else self.decode(row)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        numbers = [self._number(index) for index in indices]
        if self.backend.prefer_batched_take:
            rows: list[Any] = self.backend.take(numbers).to_pylist()
        else:
            rows = [self.backend.get_row(number) for number in numbers]
        return rows if self.decode is None else [self.decode(row) for row in rows]

    def _number(self, index: SupportsIndex) -> int:
        number, count = operator.index(index), len(self)
        if not -count <= number < count:
            raise IndexError(f"row {number} of {count}")
        return number % count
