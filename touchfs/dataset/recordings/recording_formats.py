"""Rates, channels and codings of the recordings of a dataset, counted by its catalogs; nothing else is read.

A catalog has the rate and the channels of recordings whose length it knows. Others count as unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import FileKind
from touchfs.catalog.columns import as_array
from touchfs.catalog.table import Table
from touchfs.core.errors import FormatError
from touchfs.dataset import Dataset
from touchfs.form.recordings import Decoded, Pcm
from touchfs.media.extensions import coding_of, is_recording
from touchfs.registry.forms import parse_form

# Rows whose names are compared at once, which takes some 30 bytes each.
_BLOCK = 1 << 16
T = TypeVar("T")


class RecordingFormat(NamedTuple):
    """The coding of a recording, which is the extension of its file, such as `flac`; its rate in Hz and its number of
    channels, None where they are unknown.
    """

    coding: str
    rate: int | None
    channels: int | None


@dataclass(slots=True)
class RecordingFormats:
    """The number of recordings of each format. A sample may have several recordings."""

    counts: Counter[RecordingFormat] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return self.counts.total()

    @property
    def rates(self) -> Counter[int | None]:
        return self._by(lambda each: each.rate)

    @property
    def channels(self) -> Counter[int | None]:
        return self._by(lambda each: each.channels)

    @property
    def codings(self) -> Counter[str]:
        return self._by(lambda each: each.coding)

    def _by(self, of: Callable[[RecordingFormat], T]) -> Counter[T]:
        found: Counter[T] = Counter()
        for each, count in self.counts.items():
            found[of(each)] += count
        return found

    def facts(self) -> dict[str, object]:
        """The values that `touchfs info --json` prints, by name."""
        return {
            "recordings": self.count,
            "rates": _named(self.rates),
            "channels": _named(self.channels),
            "codings": _named(self.codings),
        }

    def add(self, table: Table, kinds: Sequence[FileKind], rows: NDArray[np.int64] | None = None) -> None:
        """Count the recordings among these rows of a catalog's table, or all. Raises IndexError if it is damaged."""
        of = as_array(table.kind)
        rows = np.argsort(of, kind="stable") if rows is None else rows[np.argsort(of[rows], kind="stable")]
        bounds = np.searchsorted(of[rows], np.arange(1, len(kinds) + 2))
        for kind, first, end in zip(kinds, bounds, bounds[1:], strict=False):
            rate, channels = _format(kind)
            for extension, same in extensions_of_rows(table, rows[first:end]):
                if is_recording(extension):
                    self.counts[RecordingFormat(coding_of(extension), rate, channels)] += len(same)


def recording_formats(dataset: Dataset) -> RecordingFormats:
    """Count the recordings of a dataset. Maps each catalog. Raises FormatError, ChangedError or SourceError."""
    found = RecordingFormats()
    for position, shard in enumerate(dataset.shards):
        try:
            catalog = dataset.catalog(position)
            found.add(catalog.tables["shards"], catalog.kinds)
        except IndexError as error:
            raise FormatError("its catalog is damaged: index with --force", path=shard.path) from error
    return found


def _format(kind: FileKind) -> tuple[int | None, int | None]:
    """Rate and channels of the recordings of a kind, None where the catalog does not have them."""
    form = parse_form(kind.form)
    if isinstance(form, Pcm | Decoded):
        return form.rate, form.channels
    return kind.rate or None, kind.channels or None


def extensions_of_rows(table: Table, rows: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield extensions with some of these rows that have them. Mostly all rows of a kind have the same."""
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        while len(block):
            extension = table.extension(int(block[0]))
            have_it = table.have_extension(block, extension.encode("utf-8", "surrogateescape"))
            if not have_it[0]:
                raise IndexError(f"the name of row {block[0]}")
            yield extension, block[have_it]
            block = block[~have_it]


def _named(counts: Counter[int | None] | Counter[str]) -> dict[str, int]:
    return {"unknown" if value is None else str(value): count for value, count in counts.most_common()}
