"""A stream of a Lhotse Shar's shard whose JSON lines may be compressed, and whose fields may be in any directory.

The shard is read from a temporary directory with links to its files, and copies of what is compressed or
at a URL: some megabytes for a thousand cuts. The output of a command (`pipe:COMMAND`) is there as a whole, too, because
fields are not read in order. The directory exists as long as a sample of the shard may be read.
"""

from __future__ import annotations

import codecs
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping

from touchfs.core.location import Location
from touchfs.shard.options import DEFAULT, Options
from touchfs.source.lines import PIPE, open_stream, stream_identity
from touchfs.stream.base import Cursor, StreamItem
from touchfs.stream.shard import ShardStream

_COMPRESSED = ".jsonl.gz"
# The suffix of a command's output: only its content shows whether it is JSON lines or a tar.
PIPED = ".pipe"
_HEAD_SIZE = 4096


class SharStream:
    """`files` maps the names that the shard's files have in one directory to their paths. The cuts come first."""

    def __init__(self, files: Mapping[str, str], name: str, options: Options = DEFAULT) -> None:
        self.files = dict(files)
        self.name = name
        self._options = options

    def sizes(self) -> list[tuple[str, int | None]]:
        return sorted((name, stream_identity(path)[1]) for name, path in self.files.items())

    def samples(self, cursor: Cursor) -> Iterator[StreamItem]:
        staging = _StagingDirectory(self.files)
        cuts = next(iter(self.files.values()))
        yield from ShardStream(staging.cuts, self.name, self._options, staging, cuts).samples(cursor)


def needs_staging(files: Mapping[str, str]) -> bool:
    """Return True if a shard with these files cannot be opened in place."""
    return any(name.endswith(_COMPRESSED) for name in files) or len(set(map(os.path.dirname, files.values()))) > 1


class _StagingDirectory:
    """A temporary directory with a shard's files, deleted with this object. `cuts` is the path of its cuts."""

    def __init__(self, files: Mapping[str, str]) -> None:
        directory = tempfile.mkdtemp(prefix="touchfs-shar-")
        self._remove = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        staged = [_stage(path, os.path.join(directory, _numbered(plain_name(name)))) for name, path in files.items()]
        self.cuts = staged[0]


def _stage(path: str, target: str) -> str:
    """Link, fetch or decompress a file of the shard to `target`, and return its final path."""
    if not path.startswith(PIPE) and not path.endswith(_COMPRESSED) and not Location.of(path).is_url:
        os.symlink(path, target)
        return target
    with open_stream(path) as source, open(target, "xb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    if not target.endswith(PIPED):
        return target
    renamed = target.removesuffix(PIPED) + _suffix(target)
    os.rename(target, renamed)
    return renamed


def _suffix(path: str) -> str:
    """Return `.jsonl` or `.tar`, by the content of a file."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_SIZE).removeprefix(codecs.BOM_UTF8).lstrip()
    return ".jsonl" if head[:1] in (b"{", b"") else ".tar"


def _numbered(name: str) -> str:
    """Add a number to a name without one, so that cuts are recognized as a Shar's even without fields."""
    field, dot, rest = name.partition(".")
    return name if "." in rest else f"{field}.0{dot}{rest}"


def plain_name(name: str) -> str:
    """Return the name that a file of a Shar has when it is decompressed."""
    return name.removesuffix(".gz") if name.endswith(_COMPRESSED) else name
