"""The interface of output formats: a target has the settings of one, and opens a writer for each shard."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Protocol, Self

from touchfs.core.extent import Buffer


class Writer(Protocol):
    """Writes one shard. When its `with` block ends without an exception, everything that was added is in place."""

    @property
    def is_full(self) -> bool:
        """True if the next sample belongs to another shard."""
        ...

    def add(self, key: str, files: Mapping[str, Buffer]) -> None:
        """Add one sample. Raises FormatError, and writes nothing of it, if it cannot be stored."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Target(Protocol):
    """An output format with its settings. A dataclass: its kind and fields identify an unfinished conversion."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def kind(self) -> str:
        """The name of the format in the plan of an unfinished conversion."""
        ...

    @property
    def samples_per_shard(self) -> int | None:
        """The number of samples that fill a shard."""
        ...

    @property
    def bytes_per_shard(self) -> int | None:
        """The size of a tar that fills a shard."""
        ...

    @property
    def needs_extensions(self) -> bool:
        """True if the extensions of all samples must be known before the first shard."""
        ...

    @property
    def copies_files(self) -> bool:
        """True if all files of a sample are stored as they are, and so their segments."""
        ...

    def new_names(self, extensions: Collection[str]) -> Mapping[str, str]:
        """New extensions of those files of a sample that get other ones, by their extensions."""
        ...

    def mark(self, ordinal: int) -> str:
        """The name of the file or directory of a shard that appears last."""
        ...

    def open(self, directory: str, ordinal: int, extensions: Collection[str]) -> Writer:
        """A writer of a shard. `extensions` are those of all samples, if they are needed."""
        ...

    def publish(self, output: str, shards: int) -> None:
        """Write the list of all shards, if the format has one."""
        ...
