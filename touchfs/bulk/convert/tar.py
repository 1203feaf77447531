"""Samples as tars for WebDataset: each file of a sample as it is, under `<key>.<extension>`.

`bulk/convert/names.py` quotes keys that readers would not understand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from touchfs.bulk.convert.names import Names
from touchfs.errors import FormatError
from touchfs.extent import Buffer
from touchfs.write.tar_shards import TarShardsWriter


@dataclass(frozen=True, slots=True)
class TarTarget:
    """Tars as a target."""

    samples_per_shard: int | None = 1000
    bytes_per_shard: int | None = None
    create_index: bool = False

    def mark(self, ordinal: int) -> str:
        """The name of the file of a shard that appears last."""
        return f"{ordinal:06d}.tar" + (".idx" if self.create_index else "")

    def open(self, output: str, extensions: Callable[[], Collection[str]], first: int) -> TarSamplesWriter:
        """A writer that continues after `first` shards."""
        return TarSamplesWriter(self, output, first)


class TarSamplesWriter:
    """Writes the shards `%06d.tar` into the output."""

    def __init__(self, target: TarTarget, output: str, first: int) -> None:
        self._shards = TarShardsWriter(
            f"{output}/%06d.tar",
            samples_per_shard=target.samples_per_shard,
            bytes_per_shard=target.bytes_per_shard,
            first=first,
            create_index=target.create_index,
        )
        self._first = first
        self._names = Names()

    @property
    def shards(self) -> int:
        """The number of complete shards."""
        return self._first + len(self._shards.paths)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._shards.__exit__(*error)

    def add(self, key: str, files: Mapping[str, Buffer]) -> None:
        """Add one sample. Raises FormatError, and writes nothing of it, if it cannot be stored."""
        check_extensions(files)
        shards = self.shards
        self._shards.add(self._names.name(key), files)
        self._names.written(key)
        if self.shards > shards:
            self._names = Names()


def check_extensions(files: Mapping[str, Buffer]) -> None:
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
