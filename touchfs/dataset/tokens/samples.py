"""The windows of tokens of a dataset by position: the files of `tokens/PLAN/`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.measure import TOKENS
from touchfs.dataset import Dataset
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.sample import Sample
from touchfs.dataset.sample_file import MadeFile, SampleFile
from touchfs.dataset.samples import Samples
from touchfs.dataset.tokens.index import token_index
from touchfs.dataset.tokens.windows import ARRAY, DIGITS, EXTENSIONS, TokenWindows
from touchfs.view.token_plan import TokenPlan

_WINDOW = re.compile(r"[0-9]{6,10}")


class TokenSamples(Samples):
    """The windows of all shards of a dataset, shard by shard: none has tokens of two.

    Raises UsageError if there are samples, and none of them has tokens.
    """

    def __init__(self, dataset: Dataset, plan: TokenPlan) -> None:
        self.plan = plan
        self.view = f"tokens/{plan}"
        self._indexes = [token_index(OpenShard(dataset, shard)) for shard in dataset.shards]
        if not any(self._indexes) and not dataset.is_empty:
            raise UsageError("has no tokens: arrays of integers in .bin/.idx do", path=dataset.source)
        self._windows: TokenWindows | None = None  # of the shard that was asked for last
        super().__init__(dataset, [0 if index is None else plan.count(index.total) for index in self._indexes])

    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        """The `number`-th window of a shard."""
        windows = self._windows
        if windows is None or windows.shard is not shard:
            index = self._indexes[position]
            if index is None:
                raise IndexError(number)
            windows = self._windows = TokenWindows(shard, index, self.plan)
        return TokenWindow(self.view, windows, number)

    def places_of(self, key: str) -> Iterator[tuple[int, int]]:
        """A key is `SHARD/WINDOW`."""
        name, _, window = key.rpartition("/")
        shard = self.dataset.by_name.get(name.encode("utf-8", "surrogateescape"))
        if shard is not None and _WINDOW.fullmatch(window) and f"{int(window):0{DIGITS}d}" == window:
            yield shard, int(window)

    def lengths(self, measure: str) -> NDArray[np.int64]:
        if measure != TOKENS:
            return super().lengths(measure)
        step, length = self.plan.step, self.plan.length
        totals = [0 if index is None else index.total for index in self._indexes]
        each = [
            np.minimum(total - step * np.arange(count), length)
            for total, count in zip(totals, self._counts(), strict=True)
        ]
        return np.concatenate([np.zeros(0, np.int64), *each])

    def close(self) -> None:
        self._windows = None
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_windows": None}


class TokenWindow(Sample):
    """A window: `array()` has its tokens, and `array("cu_seqlens.npy")` where the documents in it end."""

    __slots__ = ("_windows",)

    def __init__(self, view: str, windows: TokenWindows, ordinal: int) -> None:
        # Not by super().__init__, as in `CataloguedSample`.
        self.view = view
        self.ordinal = ordinal
        self.number = 0
        self.shar_epoch = None
        self._graph_origin = None
        self._windows = windows

    @property
    def shard(self) -> str:
        """The name of its shard."""
        return self._windows.shard.shard.name

    @property
    def key(self) -> str:
        """Its shard and its number in it, as in `corpus/000123`."""
        return f"{self.shard}/{self.ordinal:0{DIGITS}d}"

    def file(self, extension: str) -> SampleFile:
        """The file with an extension. Raises KeyError."""
        if extension not in EXTENSIONS:
            raise KeyError(extension)
        path = partial(str, f"{self.view}/{self.key}.{extension}")
        return MadeFile(self._windows.index.field, path, partial(self._windows.content, self.ordinal, extension))

    def array(self, extension: str | None = None) -> NDArray[Any]:
        """See `Sample.array`. By default, its tokens."""
        if extension is None or extension == ARRAY:
            return self._windows.array(self.ordinal)
        return super().array(extension)

    def __iter__(self) -> Iterator[str]:
        return iter(EXTENSIONS)

    def __len__(self) -> int:
        return len(EXTENSIONS)

    def __contains__(self, extension: object) -> bool:
        return extension in EXTENSIONS

    def __copy__(self) -> TokenWindow:
        return TokenWindow(self.view, self._windows, self.ordinal)
