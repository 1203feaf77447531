"""A compressed shard (`NAME.tar.gz`, `NAME.jsonl.zst`, …), read as the tar or JSONL file inside it.

Opening one decompresses it into the scratch store (`touchfs.source.decompressed`) unless it is there already. From then
on it is a tar or JSONL shard; only change detection still looks at the compressed file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import ClassVar

from touchfs.containers.lines.reader import JsonlShard
from touchfs.containers.tar.reader import TarShard
from touchfs.core.errors import FormatError
from touchfs.shard.options import Options
from touchfs.shard.sample import Field, SampleRun, StoredSample, StoredSamples
from touchfs.shard.single import fingerprints, open_decompressed
from touchfs.source.decompressed import DecompressedFile
from touchfs.source.fingerprint import Files, Fingerprint


class CompressedShard(StoredSamples):
    """The shard inside the compressed file at `path`, opened by `plain`. The decompressed file is not evicted until
    `close`.
    """

    index_size = 0
    plain: ClassVar[type[TarShard | JsonlShard]]

    def __init__(self, path: str, options: Options, files: Files) -> None:
        self.path = path
        self.files = files
        (fingerprint,) = files.values()
        self._decompressed = open_decompressed(path, fingerprint, options.decompress)
        place = self._decompressed.path
        within = f"{path} (decompressed)"
        try:
            self._shard = self.plain(place, options, fingerprints(place))
        except FormatError as error:
            error.path = within
            raise
        self.size = self._shard.size
        self.regrouped = self._shard.regrouped
        self.problems = [problem.replace(place, within) for problem in self._shard.problems]

    @property
    def others(self) -> Iterable[tuple[str, Field]]:
        return self._shard.others

    def close(self) -> None:
        """Close the shard, and allow the eviction of its decompressed file."""
        self._shard.close()
        self._decompressed.close()

    def __len__(self) -> int:
        return len(self._shard)

    def sample(self, ordinal: int) -> StoredSample:
        return self._shard.sample(ordinal)

    def runs(self, ordinals: range) -> Iterator[StoredSample | SampleRun]:
        return self._shard.runs(ordinals)


class CompressedTar(CompressedShard):
    """A compressed tar."""

    plain = TarShard


class CompressedLines(CompressedShard):
    """Compressed JSON lines."""

    plain = JsonlShard


def open_source(path: str, name: str, files: Files) -> DecompressedFile:
    """Open the decompressed form of the shard at `path`. `name`, its name in the scratch store, is ignored."""
    return DecompressedFile(path, files[os.path.basename(path)])


def compressed_files(path: str, files: Files) -> dict[str, Fingerprint]:
    return {path: files[os.path.basename(path)]} if files else {}
