"""A writer of tars one after the other. The sample that fills a tar ends it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

from touchfs.containers.tar.writer import TarWriter
from touchfs.core.errors import UsageError
from touchfs.core.extent import Buffer


class TarShardsWriter:
    """`with TarShardsWriter("out/%06d.tar", samples_per_shard=1000) as writer: writer.add(key, {extension: data})`

    A shard appears when it has `samples_per_shard` samples or at least `bytes_per_shard` bytes; the last one when the
    block ends. An exception discards only the shard that is being written. Without samples there are no shards. Numbers
    in the `pattern` begin with `first`. With `create_index`, each shard gets its index. Raises UsageError for a pattern
    without a number, and for limits below 1.
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        samples_per_shard: int | None = 1000,
        bytes_per_shard: int | None = None,
        first: int = 0,
        create_index: bool = False,
    ) -> None:
        self._directory, self._name = os.path.split(os.fspath(pattern))
        try:
            different = self._name % 0 != self._name % 1
        except (TypeError, ValueError):
            different = False
        if not different:
            raise UsageError("the name needs a place for the shard's number, such as %06d", path=os.fspath(pattern))
        if any(limit is not None and limit < 1 for limit in (samples_per_shard, bytes_per_shard)) or first < 0:
            limits = f"{samples_per_shard} samples or {bytes_per_shard} bytes, from number {first} on"
            raise UsageError(f"no shards can have {limits}", path=os.fspath(pattern))
        self.paths: list[str] = []
        self._samples_per_shard, self._bytes_per_shard = samples_per_shard, bytes_per_shard
        self._first = first
        self._create_index = create_index
        self._shard: TarWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._end(*error)

    def add(self, key: str, fields: Mapping[str, Buffer]) -> None:
        """Add one sample: its `key`, and its data by extension in `fields`.

        Raises FormatError, and writes nothing of it, if it cannot be stored.
        """
        if self._shard is None:
            path = os.path.join(self._directory, self._name % (self._first + len(self.paths)))
            self._shard = TarWriter(path, create_index=self._create_index).__enter__()
        shard = self._shard
        shard.add(key, fields)
        if len(shard) == self._samples_per_shard or shard.size >= (self._bytes_per_shard or shard.size + 1):
            self._end(None, None, None)

    def _end(self, *error: Any) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.__exit__(*error)
            if error[0] is None:
                self.paths.append(shard.path)
