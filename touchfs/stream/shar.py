"""A shard of a Lhotse Shar whose JSON lines may be compressed, and whose fields may lie in other directories.

It is read from a directory of links to its files, and of what was decompressed of them: of a shard of a thousand cuts
some megabytes. The directory is there as long as a sample may be read.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Mapping

from touchfs.errors import FormatError, SourceError
from touchfs.shard.options import DEFAULT, Options
from touchfs.source.lines import stream_identity
from touchfs.stream.base import Made, Place
from touchfs.stream.shard import ShardStream

_COMPRESSED = ".jsonl.gz"


class SharStream:
    """`files` are the paths of the shard's files, by what they are called beside its cuts, which are the first."""

    def __init__(self, files: Mapping[str, str], name: str, options: Options = DEFAULT) -> None:
        self.files = dict(files)
        self.name = name
        self._options = options

    def sizes(self) -> list[tuple[str, int | None]]:
        return sorted((name, stream_identity(path)[1]) for name, path in self.files.items())

    def samples(self, place: Place) -> Iterator[Made]:
        staged = _Staged(self.files)
        yield from ShardStream(staged.cuts, self.name, self._options, staged).samples(place)


def needs_staging(files: Mapping[str, str]) -> bool:
    """Whether a shard with these files cannot be opened as it is."""
    return any(name.endswith(_COMPRESSED) for name in files) or len(set(map(os.path.dirname, files.values()))) > 1


class _Staged:
    def __init__(self, files: Mapping[str, str]) -> None:
        directory = tempfile.mkdtemp(prefix="touchfs-shar-")
        self._remove = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        staged = [os.path.join(directory, _numbered(plain_name(name))) for name in files]
        self.cuts = staged[0]
        for path, place in zip(files.values(), staged, strict=True):
            if path.endswith(_COMPRESSED):
                _decompress(path, place)
            else:
                os.symlink(path, place)


def _numbered(name: str) -> str:
    """With a number, if it has none: so cuts are those of a Shar, even without fields."""
    field, dot, rest = name.partition(".")
    return name if "." in rest else f"{field}.0{dot}{rest}"


def plain_name(name: str) -> str:
    return name.removesuffix(".gz") if name.endswith(_COMPRESSED) else name


def _decompress(path: str, plain: str) -> None:
    try:
        with gzip.open(path, "rb") as compressed, open(plain, "xb") as file:
            shutil.copyfileobj(compressed, file, 1 << 20)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"cannot be decompressed: {error}", path=path) from error
    except OSError as error:
        raise SourceError(f"cannot be decompressed: {error.strerror or error}", path=path) from error
