"""A compressed shard, as `NAME.tar.gz` or `NAME.jsonl.zst`: shown as the tar or the JSONL that is in it.

Opening one decompresses it into the scratch store (`touchfs.source.decompressed`), unless it is there already. Then it
is a shard of the other kind. Only its files, by which a change is noticed, are the compressed one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from touchfs.errors import FormatError, SourceError
from touchfs.sample import Sample, Samples
from touchfs.shard.jsonl import JsonlShard
from touchfs.shard.options import DEFAULT, Decompress, Options
from touchfs.shard.single import fingerprint
from touchfs.shard.tar import TarShard
from touchfs.source.decompressed import DecompressedFile, decompressed, find
from touchfs.source.local import FileIdentity
from touchfs.source.scratch import Held

TAR_SUFFIXES = (".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")
JSONL_SUFFIXES = (".jsonl.gz", ".jsonl.zst", ".jsonl.xz", ".jsonl.bz2")


class CompressedShard(Samples):
    """What is in the file at a path. It is not evicted before this is closed."""

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
        """Give the descriptors up."""
        self._shard.close()
        self._decompressed.close()

    def __len__(self) -> int:
        return len(self._shard)

    def sample(self, ordinal: int) -> Sample:
        return self._shard.sample(ordinal)


def open_source(path: str, name: str, files: Mapping[str, FileIdentity]) -> DecompressedFile:
    """The decompressed form of the shard `path`, whatever it was called in the scratch store."""
    return DecompressedFile(path, files[os.path.basename(path)])


def open_decompressed(path: str, identity: FileIdentity, when: Decompress) -> Held:
    """The decompressed form of a file, made now or else only found. Raises SourceError where it is not there."""
    if when is Decompress.NOW:
        return decompressed(path, identity)
    form = find(path, identity)
    if form is None:
        raise SourceError("is compressed, and not decompressed in the scratch store", path=path)
    return form


def compressed_files(path: str) -> dict[str, FileIdentity]:
    """The path of the file, and what it is."""
    (identity,) = fingerprint(path).values()
    return {path: identity}
