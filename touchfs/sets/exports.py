"""A set as something else: a table in memory, Parquet files, or WebDataset tars.

Writers are imported when they are needed: that takes longer than to open a dataset.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from touchfs.core.errors import MissingExtraError, UsageError, map_os_errors
from touchfs.core.extras import install_hint, load_pyarrow
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import DatasetSamples
from touchfs.posix.atomic import atomic_directory, replacement
from touchfs.select.concatenation import SetSamples, datasets_of
from touchfs.sets.sample_table import SampleTable, files_among
from touchfs.sets.summary import are_stored_rows, extensions_of

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from touchfs.sets.stored_rows import StoredRows

# Bytes of a shard of Parquet or of a tar.
SHARD_BYTES = 1 << 29


@dataclass(frozen=True, slots=True)
class ChosenSamples:
    """The samples at some ordinals, in their order."""

    samples: SetSamples
    ordinals: Sequence[int]

    def __iter__(self) -> Iterator[Sample]:
        return map(self.samples.__getitem__, self.ordinals)

    def rows(self, columns: Sequence[str] | None, *, with_files: bool) -> StoredRows | SampleTable:
        """The samples as rows: as they are stored, or made of what is known of them, their JSON and their files."""
        if are_stored_rows(self.samples):
            from touchfs.sets.stored_rows import StoredRows

            return StoredRows(self.samples, self.ordinals, columns)
        extensions = extensions_of(self.samples)
        return SampleTable(self.__iter__, extensions, columns, files_among(extensions) if with_files else ())

    def check_output(self, output: str) -> None:
        """Raise UsageError for an output that exists, or is in a directory that is read."""
        from touchfs.bulk.data_list import check_apart, check_output

        check_output(output)
        for dataset in datasets_of(self.samples):
            check_apart(dataset.source, output)
        if os.path.lexists(output):
            raise UsageError("already exists: remove it, or choose another output", path=output)


class Exports(ABC):
    """The methods of a set that export its samples."""

    @abstractmethod
    def _chosen(self, what: str) -> ChosenSamples:
        """The samples. Raises TypeError, that `what` is of samples, if items are something else."""

    def to_arrow(self, columns: Sequence[str] | None = None) -> pyarrow.Table:
        """A table with a row for each sample, in memory as a whole.

        Rows of tables have their columns as they are stored. Other samples have `key`, `shard`, `duration`, `text` and
        `cls` where they apply, and a column for each field of their JSON. `columns` names those that are wanted, and
        may also name files (`jpg`) and facts (`ordinal`, `segment`, `rate`, `channels`, `coding`).

        Raises UsageError for a column that there is not, and MissingExtraError without pyarrow.
        """
        rows = self._chosen("a table").rows(columns, with_files=False)
        return load_pyarrow().Table.from_batches(rows.batches(), rows.schema)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """The same as `to_arrow(columns)`, as a DataFrame. Raises MissingExtraError without pandas."""
        try:
            import pandas  # noqa: F401  pyarrow imports it
        except ImportError as error:
            raise MissingExtraError(f"data frames need pandas: {install_hint('pandas')}") from error
        return self.to_arrow(columns).to_pandas()

    def to_parquet(self, path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> int:
        """Write the samples to `path`: one file if it ends in `.parquet`, else a directory of files of about 512 MB.

        The columns are those of `to_arrow`, and the files of the samples, such as `jpg`; or `columns`. Returns the
        number of rows. The output appears as a whole. Raises UsageError if it exists already, and as `to_arrow`.
        """
        from touchfs.caches.writers.parquet import ParquetFileWriter, write_batches
        from touchfs.caches.writers.publish import publish
        from touchfs.features import Features

        output, chosen = os.fspath(path), self._chosen("Parquet")
        chosen.check_output(output)
        rows = chosen.rows(columns, with_files=True)
        if not output.endswith(".parquet"):
            with publish(output) as building:
                count = write_batches(rows.batches(), rows.schema, Features({}), building, SHARD_BYTES, None)
                building.finish()
            return count
        with map_os_errors(output), replacement(Path(output), 0o666) as file:
            shard, count = ParquetFileWriter(file, rows.schema, None), 0
            for batch in rows.batches():
                shard.write_batch(batch)
                count += len(batch)
            shard.close()
        return count

    def to_webdataset(self, directory: str | os.PathLike[str], samples_per_shard: int | None = None) -> int:
        """Write the samples as tars `000000.tar`, … of WebDataset into a new `directory`: all their files, unchanged.

        A tar ends with the sample that fills it: with `samples_per_shard` of them, or else with 512 MB. Segments are
        called `KEY/0000`. Returns the number of samples. The directory appears as a whole. Raises UsageError if it
        exists already.
        """
        from touchfs.bulk.convert.names import Names
        from touchfs.containers.tar.shards_writer import TarShardsWriter

        output, chosen = os.fspath(directory), self._chosen("WebDataset")
        chosen.check_output(output)
        is_whole = chosen.samples.view == DatasetSamples.view
        size = SHARD_BYTES if samples_per_shard is None else None
        count, tars, names = 0, 0, Names()
        with atomic_directory(output) as building:
            pattern = building / "%06d.tar"
            with TarShardsWriter(pattern, samples_per_shard=samples_per_shard, bytes_per_shard=size) as writer:
                for sample in chosen:
                    if len(writer.paths) != tars:
                        tars, names = len(writer.paths), Names()
                    key = sample.key if is_whole else f"{sample.key}/{sample.number:04d}"
                    name = names.name(key)
                    writer.add(name, {extension.replace("/", "."): sample[extension] for extension in sample})
                    names.written(key, name)
                    count += 1
        return count
