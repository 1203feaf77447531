"""Rates, channels and codings of the recordings of a dataset, counted by its catalogs; nothing else is read.

A catalog has the rate and the channels of recordings whose length it knows. Others count as unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import Catalog, FileKind
from touchfs.catalog.columns import as_array
from touchfs.catalog.table import Table
from touchfs.core.errors import FormatError
from touchfs.dataset import Dataset
from touchfs.form.recordings import Decoded, Pcm
from touchfs.media.extensions import coding_of, is_recording
from touchfs.registry.forms import parse_form

# Rows whose names are compared at once, which takes some 30 bytes each.
_BLOCK = 1 << 16


@dataclass(slots=True)
class RecordingFormats:
    """The number of recordings of each rate in Hz, number of channels, and coding. None stands for unknown ones.

    A coding is the extension of the file, such as `flac`. A sample may have several recordings.
    """

    count: int = 0
    rates: Counter[int | None] = field(default_factory=Counter)
    channels: Counter[int | None] = field(default_factory=Counter)
    codings: Counter[str] = field(default_factory=Counter)

    def facts(self) -> dict[str, object]:
        """The values that `touchfs info --json` prints, by name."""
        return {
            "recordings": self.count,
            "rates": _named(self.rates),
            "channels": _named(self.channels),
            "codings": _named(self.codings),
        }

    def add(self, shard: Catalog) -> None:
        """Count the recordings of a shard. Raises FormatError if its catalog is damaged."""
        table = shard.tables["shards"]
        kinds = as_array(table.kind)
        rows = np.argsort(kinds, kind="stable")
        bounds = np.searchsorted(kinds[rows], np.arange(1, len(shard.kinds) + 2))
        for kind, first, end in zip(shard.kinds, bounds, bounds[1:], strict=False):
            rate, channels = _format(kind)
            for extension, same in extensions_of_rows(table, rows[first:end]):
                count = len(same)
                if is_recording(extension):
                    self.count += count
                    self.rates[rate] += count
                    self.channels[channels] += count
                    self.codings[coding_of(extension)] += count


def recording_formats(dataset: Dataset) -> RecordingFormats:
    """Count the recordings of a dataset. Maps each catalog. Raises FormatError, ChangedError or SourceError."""
    found = RecordingFormats()
    for position, shard in enumerate(dataset.shards):
        try:
            found.add(dataset.catalog(position))
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
