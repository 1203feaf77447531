"""Make the catalog of the interleaved samples of a shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Protocol

from touchfs.catalog.catalog import Facts, write_catalog
from touchfs.core.errors import FormatError, MissingExtraError
from touchfs.dataset.shard import Shard
from touchfs.indexing.interleaved.looks import looks_interleaved
from touchfs.indexing.interleaved.tables import VIEW, ItemTables
from touchfs.indexing.interleaved.tar_samples import TarSamples
from touchfs.registry.containers import PARQUET
from touchfs.shard.options import INTERLEAVED, Options
from touchfs.view.interleaved import InterleavedSample


class InterleavedReader(Protocol):
    """The interleaved samples of an open shard."""

    @property
    def problems(self) -> Sequence[str]:
        """Lines about what is in no sample; complete when all samples were read."""
        ...

    def __iter__(self) -> Iterator[InterleavedSample]: ...

    def close(self) -> None:
        """Close the files."""
        ...


def make_item_catalog(shard: Shard, catalog_path: str, options: Options) -> Facts | None:
    """Index the items of a shard. None if it has no interleaved samples.

    Raises SourceError, and UnwritableError or UntrustedError if the catalog cannot be written.
    """
    tables = ItemTables(options.on_error)
    try:
        if (opened := _open(shard, options)) is None:
            return None
        with closing(opened) as samples:
            for sample in samples:
                tables.add(sample)
            report = tables.report(shard.path, samples.problems)
    except (FormatError, MissingExtraError):  # the shard itself shows what is wrong
        return None
    facts = Facts(shard.files, tables.samples, 0.0, shard.size, 0, tables.damaged, report)
    write_catalog(catalog_path, {VIEW: tables.columns(report)}, tables.kinds, facts)
    return facts


def _open(shard: Shard, options: Options) -> InterleavedReader | None:
    """A reader of the interleaved samples of a shard; None if it does not look as if it had some."""
    if shard.container is PARQUET:
        from touchfs.indexing.interleaved.parquet_samples import open_parquet_samples  # with pyarrow

        return open_parquet_samples(shard.path, shard.files, options)
    if options.kind != INTERLEAVED and not looks_interleaved(shard, options):
        return None
    return TarSamples(shard.known, options)
