"""The caches that a table can be written as, with their settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from touchfs.core.errors import FormatError, UsageError
from touchfs.features import Features, Video

ARROW, LANCE, PARQUET = "arrow", "lance", "parquet"
# Rows of a batch by default.
ROWS = 1000


@dataclass(frozen=True, slots=True)
class TableSettings:
    """A `kind` of table, arrow, lance or parquet, and how it is stored. Raises UsageError for what the kind does not
    have.

    Without `batch_size`, batches of Arrow files keep their size, and others have up to 1000 rows.
    """

    kind: str
    batch_size: int | None = None
    shard_size: float = inf
    compression: str | None = None
    payload: str | None = None
    encode_threads: int = 0

    def __post_init__(self) -> None:
        if self.kind == LANCE and (self.shard_size != inf or self.compression or self.payload):
            raise UsageError(f"--shard-size, --compression and --payload cannot be used with {self.kind}")
        if self.kind == PARQUET and self.payload:
            raise UsageError("--payload cannot be used with parquet: columns of files are never compressed there")

    @property
    def arrow_payload(self) -> str:
        """The parameter `payload` of the writer of Arrow shards."""
        return self.payload or "compressed"

    def column_names(self, extensions: Sequence[str], taken: Collection[str]) -> dict[str, str]:
        """The names of the columns for files with these extensions. No column gets a name of `taken`.

        Raises FormatError for an extension that has one of these names.
        """
        if clash := set(taken).intersection(extensions):
            raise FormatError(f"a file has the extension {min(clash)}: leave it out with --leave-out {min(clash)}")
        if self.kind != LANCE:
            return {extension: extension for extension in extensions}
        from touchfs.caches.writers.lance_file import column_names

        return column_names(extensions, taken)

    def write(self, examples: Iterator[tuple[str, dict[str, Any]]], features: Features, output: Path) -> int:
        """Write examples as a cache. Returns the number of its rows: of videos as frames, the number of frames."""
        batch_size = self.batch_size or ROWS
        options: dict[str, Any] = {
            "shard_size_bytes": self.shard_size,
            "batch_size": batch_size,
            "compression": self.compression,
            "num_encode_workers": self.encode_threads,
        }
        if self.kind == ARROW:
            from touchfs.caches.writers.arrow import write_sharded_arrow_cache

            return write_sharded_arrow_cache(examples, features, output, payload=self.arrow_payload, **options).num_rows
        if self.kind == PARQUET:
            from touchfs.caches.writers.parquet import write_parquet_shards

            return write_parquet_shards(examples, features, output, **options)
        if any(isinstance(feature, Video) and feature.storage == "frames" for feature in features.values()):
            from touchfs.caches.writers.video_frames import write_lance_video_frames_cache

            return write_lance_video_frames_cache(examples, features, output, skip_corrupt=False).num_rows
        from touchfs.caches.writers.lance_rows import write_lance_cache

        return write_lance_cache(
            examples, features, output, batch_size=batch_size, num_encode_workers=self.encode_threads
        ).num_rows
