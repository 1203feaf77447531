"""Samples as tars for WebDataset: each file of a sample as it is, under `<key>.<extension>`.

`bulk/convert/names.py` quotes keys that readers would not understand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from touchfs.bulk.convert.names import Names
from touchfs.bulk.convert.sample import same_names
from touchfs.containers.tar.writer import TarWriter
from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Buffer


@dataclass(frozen=True, slots=True)
class TarTarget:
    """Tars as a target."""

    kind: ClassVar[str] = "TarTarget"
    needs_extensions: ClassVar[bool] = False
    copies_files: ClassVar[bool] = True
    samples_per_shard: int | None = 1000
    bytes_per_shard: int | None = None
    create_index: bool = False

    def __post_init__(self) -> None:
        if any(limit is not None and limit < 1 for limit in (self.samples_per_shard, self.bytes_per_shard)):
            raise UsageError(f"no shards can have {self.samples_per_shard} samples or {self.bytes_per_shard} bytes")

    def new_names(self, extensions: Collection[str]) -> Mapping[str, str]:
        """None: files keep their names."""
        return same_names(extensions)

    def mark(self, ordinal: int) -> str:
        """The name of the file of a shard that appears last."""
        return f"{ordinal:06d}.tar" + (".idx" if self.create_index else "")

    def open(self, directory: str, ordinal: int, extensions: Collection[str] = ()) -> ArchiveSamplesWriter:
        """A writer of the shard `%06d.tar` in the directory."""
        tar, most = (
            TarWriter(os.path.join(directory, f"{ordinal:06d}.tar"), create_index=self.create_index),
            self.bytes_per_shard,
        )
        return ArchiveSamplesWriter(
            tar, lambda: len(tar) == self.samples_per_shard or (most is not None and tar.size >= most)
        )

    def publish(self, output: str, shards: int) -> None:
        """Do nothing: the tars are complete by themselves."""


class ArchiveWriter(Protocol):
    """A writer of an archive, which appears when its block ends."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def add(self, key: str, fields: Mapping[str, Buffer]) -> None:
        """Add one sample. Raises FormatError, and writes nothing of it, if it cannot be stored."""
        ...


class ArchiveSamplesWriter:
    """Writes an archive, in which samples have the `names` of files. `is_full` says when the next one begins."""

    def __init__(self, archive: ArchiveWriter, is_full: Callable[[], bool]) -> None:
        self._archive = archive
        self._is_full = is_full
        self._names = Names()

    @property
    def is_full(self) -> bool:
        """True if the next sample belongs to another archive."""
        return self._is_full()

    def __enter__(self) -> Self:
        self._archive.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._archive.__exit__(*error)

    def add(self, key: str, files: Mapping[str, Buffer]) -> None:
        """Add one sample. Raises FormatError, and writes nothing of it, if it cannot be stored."""
        _check_extensions(files)
        name = self._names.name(key)
        self._archive.add(name, files)
        self._names.written(key, name)


def _check_extensions(files: Mapping[str, Buffer]) -> None:
    """Raise FormatError unless readers find all files: they skip files without an extension and ignore case."""
    known: dict[str, str] = {}
    for extension in files:
        if not extension:
            problem = "has a file without an extension, which WebDataset passes over: leave it out with --leave-out ''"
            raise FormatError(problem)
        other = known.setdefault(extension.lower(), extension)
        if other != extension:
            problem = f"{other} and {extension} are one to WebDataset: leave one out with --leave-out {extension}"
            raise FormatError(problem)
