"""Samples as ZIP archives: each file of a sample as it is, under the names of tars (`bulk/convert/names.py`)."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from touchfs.bulk.convert.sample import same_names
from touchfs.bulk.convert.tar import ArchiveSamplesWriter
from touchfs.containers.zip.writer import ZipWriter


@dataclass(frozen=True, slots=True)
class ZipTarget:
    """ZIP archives as a target."""

    kind: ClassVar[str] = "ZipTarget"
    needs_extensions: ClassVar[bool] = False
    copies_files: ClassVar[bool] = True
    bytes_per_shard: ClassVar[None] = None
    samples_per_shard: int = 1000

    def new_names(self, extensions: Collection[str]) -> Mapping[str, str]:
        """None: files keep their names."""
        return same_names(extensions)

    def mark(self, ordinal: int) -> str:
        """The name of the file of a shard."""
        return f"{ordinal:06d}.zip"

    def open(self, directory: str, ordinal: int, extensions: Collection[str] = ()) -> ArchiveSamplesWriter:
        """A writer of the shard `%06d.zip` in the directory."""
        archive = ZipWriter(os.path.join(directory, self.mark(ordinal)))
        return ArchiveSamplesWriter(archive, lambda: len(archive) == self.samples_per_shard or archive.is_full)

    def publish(self, output: str, shards: int) -> None:
        """Do nothing: the archives are complete by themselves."""
