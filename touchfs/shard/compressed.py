"""A compressed shard (`NAME.tar.gz`, `NAME.jsonl.zst`, …), read as the tar or JSONL file inside it.

Opening one decompresses it into the scratch store (`touchfs.source.decompressed`) unless it is there already. From then
on it is a tar or JSONL shard; only change detection still looks at the compressed file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from touchfs.errors import FormatError, SourceError
from touchfs.sample import StoredSample, StoredSamples
from touchfs.shard.jsonl import JsonlShard
from touchfs.shard.options import DEFAULT, Decompress, Options
from touchfs.shard.single import fingerprint
from touchfs.shard.tar import TarShard
from touchfs.source.decompressed import DecompressedFile, decompressed, find
from touchfs.source.local import FileIdentity
from touchfs.source.scratch import ScratchFile

TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")
JSONL_SUFFIXES = (".jsonl.gz", ".jsonl.zst", ".jsonl.xz", ".jsonl.bz2")


class CompressedShard(StoredSamples):
    """The shard inside the compressed file at `path`. The decompressed file is not evicted until `close`."""

    index_size = 0

    def __init__(self, path: str, options: Options = DEFAULT) -> None:
        self.path = path
        self.files: Mapping[str, FileIdentity] = fingerprint(path)
        (identity,) = self.files.values()
        self._decompressed = open_decompressed(path, identity, options.decompress)
        within = f"{path} (decompressed)"
        try:
            self._shard = (TarShard if path.endswith(TAR_SUFFIXES) else JsonlShard)(self._decompressed.path, options)
        except FormatError as error:
            error.path = within
            raise
        self.size = self._shard.size
        self.problems = [problem.replace(self._decompressed.path, within) for problem in self._shard.problems]

    def close(self) -> None:
        """Close the shard, and allow the eviction of its decompressed file."""
        self._shard.close()
        self._decompressed.close()

    def __len__(self) -> int:
        return len(self._shard)

    def sample(self, ordinal: int) -> StoredSample:
        """The sample at an ordinal."""
        return self._shard.sample(ordinal)


def open_source(path: str, name: str, files: Mapping[str, FileIdentity]) -> DecompressedFile:
    """Open the decompressed form of the shard at `path`. `name`, its name in the scratch store, is ignored."""
    return DecompressedFile(path, files[os.path.basename(path)])


def open_decompressed(path: str, identity: FileIdentity, when: Decompress) -> ScratchFile:
    """The decompressed form of a file: made if `when` is NOW, else only looked up.

    Raises SourceError if it is missing.
    """
    if when is Decompress.NOW:
        return decompressed(path, identity)
    form = find(path, identity)
    if form is None:
        raise SourceError("is compressed, and not decompressed in the scratch store", path=path)
    return form


def compressed_files(path: str) -> dict[str, FileIdentity]:
    """The path and identity of the compressed file. Raises NotFoundError or SourceError."""
    (identity,) = fingerprint(path).values()
    return {path: identity}
