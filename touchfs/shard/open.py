"""Open the shard at a path. The suffix of the path decides which container it is.

    PREFIX.idx      Megatron-LM or fairseq: `touchfs.shard.megatron`
    NAME.tar        a tar: `touchfs.shard.tar`
    NAME.jsonl      JSON lines: `touchfs.shard.jsonl`
    NAME.tar.gz     and the like, one of these two, compressed: `touchfs.shard.compressed`
    cuts.*.jsonl    Lhotse Shar, with the files of its fields beside it: `touchfs.shard.shar.shard`;
                    `cuts.jsonl` only if it has fields
    a directory     TouchNet: `touchfs.shard.touchnet`, also if the path does not exist

`touchfs.shard.find` finds the shards of a dataset; from there on a shard is its path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from touchfs.errors import SourceError
from touchfs.posix.links import check_links
from touchfs.sample import StoredSample
from touchfs.shard import compressed, jsonl, megatron, single, tar, touchnet
from touchfs.shard.options import DEFAULT, Options
from touchfs.shard.shar import files as shar_files
from touchfs.shard.shar import shard as shar
from touchfs.source.concat import StoredFile
from touchfs.source.local import FileIdentity


class ShardReader(Protocol):
    """An open shard: a sequence of samples, over files by name."""

    @property
    def files(self) -> Mapping[str, FileIdentity]:
        """The identity of each file, by name."""
        ...

    @property
    def size(self) -> int:
        """Bytes of data, without indexes."""
        ...

    @property
    def index_size(self) -> int:
        """Bytes of the native indexes."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """Parts of the shard that cannot be shown, one line each; problems of samples are not repeated here."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """Oddities that do not keep anything from being shown, one line each."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[StoredSample]: ...

    def sample(self, ordinal: int) -> StoredSample:
        """The sample at an ordinal of the shard."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class Container(NamedTuple):
    """One container format: its name for users, and the functions that read shards of it."""

    name: str
    open: Callable[[str, Options], ShardReader]
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


def open_shard(path: str, options: Options = DEFAULT) -> ShardReader:
    """Open the shard at a path. Raises FormatError, NotFoundError or SourceError."""
    return _container(path).open(path, options)


def fingerprint(path: str) -> dict[str, FileIdentity]:
    """Identities of a shard's files by name, without reading them. Raises NotFoundError or SourceError."""
    files = _container(path).fingerprint(path)
    for file in file_paths(path, files):
        try:
            check_links(file)
        except OSError as error:
            raise SourceError(error.strerror or str(error), path=file) from error
    return files


def file_paths(path: str, files: Mapping[str, FileIdentity]) -> list[str]:
    """The paths of a shard's files, from its fingerprint, without accessing the file system."""
    directory = path if _container_by_files(path, files) is _DIRECTORY else os.path.dirname(path)
    return [os.path.join(directory, name) for name in files]


def open_source(path: str, name: str, files: Mapping[str, FileIdentity]) -> StoredFile:
    """The file that a field of the shard at `path` names as its source. `files` is the shard's fingerprint.

    Does not access the shard's file system, which may not answer.
    """
    return _container_by_files(path, files).open_source(path, name, files)


def compressed_files(path: str) -> dict[str, FileIdentity]:
    """Paths and identities of the shard's files that must be decompressed into the scratch store before it opens."""
    return _container(path).compressed_files(path)


def keys_are_paths(path: str) -> bool:
    """True if the keys of the shard at a path are paths of an archive, where `./a` is `a`."""
    return _container(path).keys_are_paths


def kind_name(path: str, files: Mapping[str, FileIdentity] = MappingProxyType({})) -> str:
    """The name of the container format of a shard, from its fingerprint, without accessing the file system."""
    return _container_by_files(path, files).name


def shard_name(path: str, files: Mapping[str, FileIdentity] | None = None) -> str:
    """The name of a shard: the last component of its path, without the suffix of its container format.

    Given its fingerprint, this does not access the file system.
    """
    name = os.path.basename(path)
    container = _container(path) if files is None else _container_by_files(path, files)
    return name if container is _DIRECTORY else name.removesuffix(_suffix(path))


def _container(path: str) -> Container:
    return _DIRECTORY if os.path.isdir(path) else _container_by_name(path)


def _container_by_files(path: str, files: Mapping[str, FileIdentity]) -> Container:
    """The fingerprint of a shard that is a directory has the files in it, not the directory itself."""
    return _DIRECTORY if files and os.path.basename(path) not in files else _container_by_name(path)


def _container_by_name(path: str) -> Container:
    return _SHAR if shar_files.is_shard(path) else _BY_SUFFIX.get(_suffix(path), _DIRECTORY)


def _suffix(path: str) -> str:
    name = os.path.basename(path)
    return next((suffix for suffix in _BY_SUFFIX if name.endswith(suffix) and name != suffix), "")


if TYPE_CHECKING:
    _: list[type[ShardReader]] = [
        touchnet.TouchNetShard,
        megatron.MegatronShard,
        tar.TarShard,
        jsonl.JsonlShard,
        shar.SharShard,
    ]
    __: type[ShardReader] = compressed.CompressedShard
