"""Copying tables: the batches of one become those of a new cache, with their columns and types as they are.

No value is decoded, so it is also how a table gets another compression, or payloads that a mount need not decompress.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from touchfs.bulk.chosen import Choice
from touchfs.bulk.convert.input import inputs_of
from touchfs.bulk.tables.batches import ArrowBatches, BatchSource, ParquetBatches, of_size
from touchfs.bulk.tables.lance_batches import LanceBatches, is_lance_table
from touchfs.bulk.tables.overlaid import OverlaidTable
from touchfs.bulk.tables.writers import ARROW, LANCE, PARQUET, ROWS, TableSettings
from touchfs.caches.writers.publish import publish
from touchfs.core.errors import map_os_errors
from touchfs.core.location import Location
from touchfs.core.progress import Progress
from touchfs.features import Features
from touchfs.features.video import ASSETS
from touchfs.format.cache_metadata.layouts import CacheMetadata, LanceMetadata, ShardedMetadata
from touchfs.posix.link_or_copy import link_or_copy
from touchfs.registry import containers
from touchfs.registry.find import find
from touchfs.shard.options import Options


def find_table(
    source: str, settings: TableSettings, options: Options, choice: Choice | None = None
) -> BatchSource | None:
    """The table that a dataset is: all of its shards are Arrow files, all Parquet, or all Lance. None for others,
    and where parts of its samples are chosen.

    Its rows have the values of its directories, too, and the columns of overlays.

    Raises FormatError for shards with different columns, and the errors of files.
    """
    found, limits = find(Location.parse(source), split=options.split).shards, options.limits
    kinds, rows = {shard.container for shard in found}, settings.batch_size or ROWS
    shards = inputs_of(found, choice)
    if not shards or any(shard.chosen is not None and shard.chosen.parts is not None for shard in shards):
        return None
    table: BatchSource
    if kinds == {containers.ARROW}:
        table = ArrowBatches(shards, limits)
    elif kinds == {containers.PARQUET}:
        table = ParquetBatches(shards, rows, limits)
    elif all(is_lance_table(shard, limits) for shard in shards):
        table = LanceBatches(shards, rows, limits)
    else:
        return None
    return OverlaidTable(table, shards) if any(shard.overlaid for shard in shards) else table


def copy_table(table: BatchSource, output: str, settings: TableSettings, progress: Progress) -> int:
    """Write the rows of a table as a cache, or as Parquet files, at `output`. Returns their number.

    Videos beside the table are copied, too. Raises FormatError for shards with different columns, UsageError for types
    that cannot be stored so, and the errors of files.
    """
    batches = table.batches(progress)
    if settings.batch_size is not None:
        batches = of_size(batches, settings.batch_size)
    if settings.kind == LANCE:
        from touchfs.caches.writers.lance_file import check_column_names

        check_column_names(table.schema.names)
    with publish(output) as building:
        if settings.kind == PARQUET:
            from touchfs.caches.writers.parquet import write_batches

            features = Features.from_json(table.description.get("features") or {})
            rows = write_batches(batches, table.schema, features, building, settings.shard_size, settings.compression)
            _copy_assets(table.directory, building.path)
            building.finish()
            return rows
        written: CacheMetadata
        if settings.kind == ARROW:
            from touchfs.caches.writers.arrow import arrow_shards

            out = arrow_shards(
                building, table.schema, settings.shard_size, settings.compression, settings.arrow_payload
            )
            with closing(out):
                for batch in batches:
                    out.write(batch)
            written = ShardedMetadata(
                num_rows=sum(out.row_counts),
                shard_filenames=tuple(out.names),
                shard_row_counts=tuple(out.row_counts),
                compression=settings.compression,
                **table.description,
            )
        else:
            from touchfs.caches.writers.lance_file import CountedBatches, write_lance

            counted = CountedBatches(batches)
            write_lance(counted, table.schema, building.path)
            written = LanceMetadata(num_rows=counted.rows, **table.description)
        _copy_assets(table.directory, building.path)
        building.commit(written)
    return written.num_rows


def _copy_assets(source: str, output: Path) -> None:
    """Copy the videos beside a table, as hard links where that is possible. No link and no directory is followed."""
    place = os.path.join(source, *ASSETS)
    with map_os_errors(place):
        if not os.path.isdir(place):
            return
        with os.scandir(place) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        target = output.joinpath(*ASSETS)
        target.mkdir(parents=True)
        for name in names:
            link_or_copy(os.path.join(place, name), target / name)
