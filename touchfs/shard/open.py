"""From a path to a shard: which kind it is, told by its suffix.

    PREFIX.idx      Megatron-LM or fairseq: `touchfs.shard.megatron`
    NAME.tar        a tar: `touchfs.shard.tar`
    NAME.jsonl      JSON lines: `touchfs.shard.jsonl`
    NAME.tar.gz     and the like, one of these two: `touchfs.shard.compressed`
    cuts.*.jsonl    Lhotse Shar, with the files of its fields beside it: `touchfs.shard.shar.shard`;
                    of `cuts.jsonl` only if there are any
    a directory     TouchNet: `touchfs.shard.touchnet`, also where nothing is at the path

What a SOURCE has in it is found by `touchfs.shard.find`; from there on a shard is its path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from touchfs.errors import SourceError
from touchfs.posix.links import check_links
from touchfs.sample import Sample
from touchfs.shard import compressed, jsonl, megatron, single, tar, touchnet
from touchfs.shard.options import DEFAULT, Options
from touchfs.shard.shar import files as shar_files
from touchfs.shard.shar import shard as shar
from touchfs.source.concat import StoredFile
from touchfs.source.local import FileIdentity


class Shard(Protocol):
    """An open shard: its samples in order, over files by name."""

    @property
    def files(self) -> Mapping[str, FileIdentity]: ...

    @property
    def size(self) -> int:
        """Bytes of data, without indexes."""
        ...

    @property
    def index_size(self) -> int: ...

    @property
    def problems(self) -> Sequence[str]:
        """What cannot be shown of it, a line each, beside the problems of samples."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """What is odd in it, though it can be shown, a line each."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sample]: ...

    def sample(self, ordinal: int) -> Sample: ...

    def close(self) -> None: ...


class Container(NamedTuple):
    name: str
    open: Callable[[str, Options], Shard]
    fingerprint: Callable[[str], dict[str, FileIdentity]]
    open_source: Callable[[str, str, Mapping[str, FileIdentity]], StoredFile]
    compressed_files: Callable[[str], dict[str, FileIdentity]] = lambda path: {}
    keys_are_paths: bool = False


def _compressed(name: str, keys_are_paths: bool = False) -> Container:
    shard, source = compressed.CompressedShard, compressed.open_source
    return Container(
        f"compressed {name}", shard, single.fingerprint, source, compressed.compressed_files, keys_are_paths
    )


_DIRECTORY = Container("TouchDataset (.bin/.idx)", touchnet.TouchNetShard, touchnet.fingerprint, touchnet.open_source)
_SHAR = Container("Lhotse Shar", shar.SharShard, shar_files.fingerprint, shar.open_source, shar.compressed_files)
_BY_SUFFIX = {
    ".idx": Container("Megatron-LM (.bin/.idx)", megatron.MegatronShard, megatron.fingerprint, megatron.open_source),
    ".tar": Container("tar", tar.TarShard, single.fingerprint, single.open_source, keys_are_paths=True),
    ".jsonl": Container("JSON lines", jsonl.JsonlShard, single.fingerprint, single.open_source),
    **dict.fromkeys(compressed.TAR_SUFFIXES, _compressed("tar", keys_are_paths=True)),
    **dict.fromkeys(compressed.JSONL_SUFFIXES, _compressed("JSON lines")),
}


def open_shard(path: str, options: Options = DEFAULT) -> Shard:
    """Open the shard at a path."""
    return _kind(path).open(path, options)


def fingerprint(path: str) -> dict[str, FileIdentity]:
    """The identities of a shard's files by name, without a read. Raises NotFoundError or SourceError."""
    files = _kind(path).fingerprint(path)
    for file in file_paths(path, files):
        try:
            check_links(file)
        except OSError as error:
            raise SourceError(error.strerror or str(error), path=file) from error
    return files


def file_paths(path: str, files: Mapping[str, FileIdentity]) -> list[str]:
    """The paths of a shard's files, from its fingerprint; nothing is looked at."""
    directory = path if _known_kind(path, files) is _DIRECTORY else os.path.dirname(path)
    return [os.path.join(directory, name) for name in files]


def open_source(path: str, name: str, files: Mapping[str, FileIdentity]) -> StoredFile:
    """The file that a field of the shard at `path` names as its source. `files` is the shard's fingerprint.

    Nothing is looked at, as the shard's file system may not answer.
    """
    return _known_kind(path, files).open_source(path, name, files)


def compressed_files(path: str) -> dict[str, FileIdentity]:
    """The paths of a shard's files that must be in the scratch store before it can be opened, and what they are."""
    return _kind(path).compressed_files(path)


def keys_are_paths(path: str) -> bool:
    """Whether the keys of the shard at a path are paths of an archive, where `./a` is `a`."""
    return _kind(path).keys_are_paths


def kind_name(path: str, files: Mapping[str, FileIdentity] = MappingProxyType({})) -> str:
    """What kind of shard is at a path, in words, by its fingerprint; nothing is looked at."""
    return _known_kind(path, files).name


def shard_name(path: str, files: Mapping[str, FileIdentity] | None = None) -> str:
    """What a shard is called: the last component of its path, without the suffix that told its kind. With its
    fingerprint it is not looked at.
    """
    name = os.path.basename(path)
    kind = _kind(path) if files is None else _known_kind(path, files)
    return name if kind is _DIRECTORY else name.removesuffix(_suffix(path))


def _kind(path: str) -> Container:
    return _DIRECTORY if os.path.isdir(path) else _named_kind(path)


def _known_kind(path: str, files: Mapping[str, FileIdentity]) -> Container:
    """Of a shard that is a directory, the fingerprint has files in it, and not itself."""
    return _DIRECTORY if files and os.path.basename(path) not in files else _named_kind(path)


def _named_kind(path: str) -> Container:
    return _SHAR if shar_files.is_shard(path) else _BY_SUFFIX.get(_suffix(path), _DIRECTORY)


def _suffix(path: str) -> str:
    name = os.path.basename(path)
    return next((suffix for suffix in _BY_SUFFIX if name.endswith(suffix) and name != suffix), "")


if TYPE_CHECKING:
    _: list[type[Shard]] = [
        touchnet.TouchNetShard,
        megatron.MegatronShard,
        tar.TarShard,
        jsonl.JsonlShard,
        shar.SharShard,
    ]
    __: type[Shard] = compressed.CompressedShard
