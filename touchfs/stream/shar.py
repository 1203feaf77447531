"""A shard of a Lhotse Shar whose JSON lines may be compressed, and whose fields may lie in other directories.

It is read from a directory of links to its files, and of what was decompressed of them: of a shard of a thousand cuts
some megabytes. What a command writes (`pipe:COMMAND`) is there, too, all of it, since fields are not read in order. The
directory is there as long as a sample may be read.
"""

from __future__ import annotations

import codecs
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping

from touchfs.shard.options import DEFAULT, Options
from touchfs.source.lines import PIPE, open_stream, stream_identity
from touchfs.stream.base import Cursor, StreamItem
from touchfs.stream.shard import ShardStream

_COMPRESSED = ".jsonl.gz"
# What a field of a command is called: whether it is JSON lines or a tar, only its bytes tell.
PIPED = ".pipe"
_HEAD_SIZE = 4096


class SharStream:
    """`files` are the paths of the shard's files, by what they are called beside its cuts, which are the first."""

    def __init__(self, files: Mapping[str, str], name: str, options: Options = DEFAULT) -> None:
        self.files = dict(files)
        self.name = name
        self._options = options

    def sizes(self) -> list[tuple[str, int | None]]:
        return sorted((name, stream_identity(path)[1]) for name, path in self.files.items())

    def samples(self, place: Cursor) -> Iterator[StreamItem]:
        staged = _StagingDirectory(self.files)
        yield from ShardStream(staged.cuts, self.name, self._options, staged).samples(place)


def needs_staging(files: Mapping[str, str]) -> bool:
    """Whether a shard with these files cannot be opened as it is."""
    return any(name.endswith(_COMPRESSED) for name in files) or len(set(map(os.path.dirname, files.values()))) > 1


class _StagingDirectory:
    def __init__(self, files: Mapping[str, str]) -> None:
        directory = tempfile.mkdtemp(prefix="touchfs-shar-")
        self._remove = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        staged = [_stage(path, os.path.join(directory, _numbered(plain_name(name)))) for name, path in files.items()]
        self.cuts = staged[0]


def _stage(path: str, place: str) -> str:
    """Put a file of the shard into its place, and return where that is."""
    if not path.startswith(PIPE) and not path.endswith(_COMPRESSED):
        os.symlink(path, place)
        return place
    with open_stream(path) as source, open(place, "xb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    if not place.endswith(PIPED):
        return place
    named = place.removesuffix(PIPED) + _suffix(place)
    os.rename(place, named)
    return named


def _suffix(path: str) -> str:
    """`.jsonl` or `.tar`, by what is in a file."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_SIZE).removeprefix(codecs.BOM_UTF8).lstrip()
    return ".jsonl" if head[:1] in (b"{", b"") else ".tar"


def _numbered(name: str) -> str:
    """With a number, if it has none: so cuts are those of a Shar, even without fields."""
    field, dot, rest = name.partition(".")
    return name if "." in rest else f"{field}.0{dot}{rest}"


def plain_name(name: str) -> str:
    return name.removesuffix(".gz") if name.endswith(_COMPRESSED) else name
