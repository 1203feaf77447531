"""A compressed shard (`NAME.tar.gz`, `NAME.jsonl.zst`, …), read as the tar or JSONL file inside it.

Opening one decompresses it into the scratch store (`touchfs.source.decompressed`) unless it is there already. From then
on it is a tar or JSONL shard; only change detection still looks at the compressed file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from touchfs.errors import FormatError, SourceError
from touchfs.sample import Field, StoredSample, StoredSamples
from touchfs.shard.jsonl import JsonlShard
from touchfs.shard.options import Decompress, Options
from touchfs.shard.single import fingerprints
from touchfs.shard.tar import TarShard
from touchfs.source.decompressed import DecompressedFile, decompressed, find, is_compressed_lines
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.scratch.file import ScratchFile


class CompressedShard(StoredSamples):
    """The shard inside the compressed file at `path`. The decompressed file is not evicted until `close`."""

    index_size = 0

    def __init__(self, path: str, options: Options, files: Files) -> None:
        self.path = path
        self.files = files
        (fingerprint,) = files.values()
        self._decompressed = open_decompressed(path, fingerprint, options.decompress)
        plain = self._decompressed.path
        within = f"{path} (decompressed)"
        reader = JsonlShard if is_compressed_lines(path) else TarShard
        try:
            self._shard = reader(plain, options, fingerprints(plain))
        except FormatError as error:
            error.path = within
            raise
        self.size = self._shard.size
        self.regrouped = self._shard.regrouped
        self.problems = [problem.replace(plain, within) for problem in self._shard.problems]

    @property
    def others(self) -> Iterable[tuple[str, Field]]:
        """See `ShardReader.others`."""
        return self._shard.others

    def close(self) -> None:
        """Close the shard, and allow the eviction of its decompressed file."""
        self._shard.close()
        self._decompressed.close()

    def __len__(self) -> int:
        return len(self._shard)

    def sample(self, ordinal: int) -> StoredSample:
        """The sample at an ordinal."""
        return self._shard.sample(ordinal)


def open_source(path: str, name: str, files: Files) -> DecompressedFile:
    """Open the decompressed form of the shard at `path`. `name`, its name in the scratch store, is ignored."""
    return DecompressedFile(path, files[os.path.basename(path)])


def open_decompressed(path: str, fingerprint: Fingerprint, when: Decompress) -> ScratchFile:
    """The decompressed form of a file: made if `when` is NOW, else only looked up.

    Raises SourceError if it is missing.
    """
    if when is Decompress.NOW:
        return decompressed(path, fingerprint)
    form = find(path, fingerprint)
    if form is None:
        raise SourceError("is compressed, and not decompressed in the scratch store", path=path)
    return form


def compressed_files(path: str, files: Files) -> dict[str, Fingerprint]:
    """The path and fingerprint of the compressed file."""
    return {path: files[os.path.basename(path)]} if files else {}
