"""Open the shard at a path. The suffix of the path decides which container it is.

    PREFIX.idx      Megatron-LM or fairseq: `touchfs.shard.megatron`
    NAME.tar        a tar: `touchfs.shard.tar`
    NAME.jsonl      JSON lines: `touchfs.shard.jsonl`
    NAME.arrow      Arrow IPC, file or stream, also .feather: `touchfs.shard.tables.arrow`
    NAME.parquet    Parquet: `touchfs.shard.tables.parquet`
    NAME.tar.gz     and the like, one of these two, compressed: `touchfs.shard.compressed`
    cuts.*.jsonl    Lhotse Shar, with the files of its fields beside it: `touchfs.shard.shar.shard`;
                    `cuts.jsonl` only if it has fields
    wav.scp         a data directory of Kaldi's: `touchfs.shard.lists.wav_scp`
    a directory     with `_versions`, a Lance dataset: `touchfs.shard.tables.lance`
                    else TouchNet: `touchfs.shard.touchnet`, also if the path does not exist

`touchfs.shard.find` finds the shards of a dataset; from there on a shard is its path. A reader is imported when a shard
needs it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from touchfs.errors import NotFoundError, SourceError
from touchfs.format.idx import INDEX_SUFFIX
from touchfs.format.parquet import PARQUET_SUFFIX
from touchfs.posix.paths import shown_name
from touchfs.sample import Field, StoredSample
from touchfs.shard import single
from touchfs.shard.options import DEFAULT, Options
from touchfs.shard.shar import files as shar_files
from touchfs.shard.tables import files as arrow_files
from touchfs.shard.tables import lance_files
from touchfs.shard.tables.files import ARROW_SUFFIXES
from touchfs.source.data import DATA
from touchfs.source.decompressed import JSONL_SUFFIXES, TAR_SUFFIXES
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import FileType, Store, StoredFile


class ShardReader(Protocol):
    """An open shard: a sequence of samples, over files by name."""

    @property
    def files(self) -> Files:
        """The fingerprint of each file, by name."""
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

    @property
    def others(self) -> Iterable[tuple[str, Field]]:
        """Files that are shown and belong to no sample, with their paths."""
        ...

    @property
    def regrouped(self) -> int:
        """The number of files that version 0.1 put into other samples."""
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
    open: Callable[[str, Options, Files], ShardReader]
    fingerprints: Callable[[str, Store], dict[str, Fingerprint]]
    open_source: Callable[[str, str, Files], StoredFile]
    compressed_files: Callable[[str, Files], dict[str, Fingerprint]] = lambda path, files: {}
    keys_are_paths: bool = False
    column_types: Callable[[str, Files], dict[str, str]] | None = None


def _of(name: str) -> Callable[..., Any]:
    """A class or function below `touchfs.shard`. Its module is imported when it is called: a dataset needs one reader
    or two, and an indexed one none of most kinds.
    """
    module, _, attribute = name.rpartition(".")

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(f"touchfs.shard.{module}"), attribute)(*arguments)

    return call


def _compressed(name: str, keys_are_paths: bool = False) -> Container:
    return Container(
        f"compressed {name}",
        _of("compressed.CompressedShard"),
        single.fingerprints,
        _of("compressed.open_source"),
        _of("compressed.compressed_files"),
        keys_are_paths,
    )


_DIRECTORY = Container(
    "TouchDataset (.bin/.idx)",
    _of("touchnet.TouchNetShard"),
    _of("touchnet.fingerprints"),
    _of("touchnet.open_source"),
)
_LANCE = Container(
    "Lance dataset",
    _of("tables.lance.open_lance_shard"),
    lance_files.fingerprints,
    lance_files.open_source,
    column_types=arrow_files.lance_column_types,
)
_SHAR = Container(
    "Lhotse Shar",
    _of("shar.shard.SharShard"),
    shar_files.fingerprints,
    _of("shar.shard.open_source"),
    _of("shar.shard.compressed_files"),
)
_KALDI = Container(
    "Kaldi data directory", _of("lists.wav_scp.KaldiShard"), _of("lists.wav_scp.fingerprints"), single.open_source
)
_ARROW = Container(
    "Arrow",
    _of("tables.arrow.ArrowShard"),
    arrow_files.fingerprints,
    single.open_source,
    column_types=arrow_files.column_types,
)
_PARQUET = Container(
    "Parquet",
    _of("tables.parquet.ParquetShard"),
    single.fingerprints,
    single.open_source,
    column_types=arrow_files.parquet_column_types,
)
_BY_SUFFIX = {
    ".idx": Container(
        "Megatron-LM (.bin/.idx)",
        _of("megatron.MegatronShard"),
        _of("megatron.fingerprints"),
        _of("megatron.open_source"),
    ),
    ".tar": Container("tar", _of("tar.TarShard"), single.fingerprints, single.open_source, keys_are_paths=True),
    ".jsonl": Container("JSON lines", _of("jsonl.JsonlShard"), single.fingerprints, single.open_source),
    lance_files.SUFFIX: _LANCE,
    **dict.fromkeys(ARROW_SUFFIXES, _ARROW),
    PARQUET_SUFFIX: _PARQUET,
    **dict.fromkeys(TAR_SUFFIXES, _compressed("tar", keys_are_paths=True)),
    **dict.fromkeys(JSONL_SUFFIXES, _compressed("JSON lines")),
}


def open_shard(path: str, options: Options = DEFAULT, files: Files | None = None) -> ShardReader:
    """Open the shard at a path whose fingerprints are `files`; by default, they are looked up now.

    Raises FormatError, ChangedError, NotFoundError or SourceError.
    """
    files = fingerprints(path) if files is None else files
    container = _container(path, files) if files else _DIRECTORY  # only a directory can have none
    return container.open(path, options, single.without_lists(files))


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """Fingerprints of a shard's files by name, without reading them. Raises NotFoundError or SourceError."""
    container = _SHAR if shar_files.is_shard(path, store) else _container_by_suffix(path)
    try:
        if store.stat(path).type is FileType.DIRECTORY:
            container = _LANCE if lance_files.is_lance_dataset(path, store.list(path)) else _DIRECTORY
        elif container in (_DIRECTORY, _LANCE):
            raise SourceError("is not a directory", path=path)
        return container.fingerprints(path, store)
    except NotFoundError as error:
        raise NotFoundError("no such shard", path=path) from error


def fingerprints_with_lists(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """Fingerprints of a shard's files and of Kaldi's lists beside it, which may have segments. Raises as above."""
    files = fingerprints(path, store)
    is_beside = os.path.basename(path) in files and not path.endswith(INDEX_SUFFIX)
    return files | (single.list_fingerprints(path, store) if is_beside else {})


# The functions below know a shard by its path and fingerprints, and do not ask its store, which may not answer.


def file_paths(path: str, files: Files) -> dict[str, Fingerprint]:
    """The fingerprints of a shard's files by path."""
    directory = path if _container(path, files) in (_DIRECTORY, _LANCE) else os.path.dirname(path)
    return {os.path.join(directory, name): fingerprint for name, fingerprint in files.items()}


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """The file that a field of a shard names as its source."""
    return _container(path, files).open_source(path, name, files)


def compressed_files(path: str, files: Files) -> dict[str, Fingerprint]:
    """Fingerprints by path of the shard's files that must be decompressed into the scratch store before it opens."""
    return _container(path, files).compressed_files(path, files)


def keys_are_paths(path: str, files: Files) -> bool:
    """True if the keys of a shard are paths of an archive, where `./a` is `a`."""
    return _container(path, files).keys_are_paths


def is_table(path: str, files: Files) -> bool:
    """True if a shard is a table, whose samples are rows."""
    return _container(path, files).column_types is not None


def column_types(path: str, files: Files) -> dict[str, str]:
    """The types of the columns of a table by their names; empty for other shards. Raises the errors of its reader."""
    read = _container(path, files).column_types
    return {} if read is None else read(path, files)


def kind_name(path: str, files: Files) -> str:
    """The name of the container format of a shard."""
    return _container(path, files).name


def shard_name(path: str, files: Files) -> str:
    """The name of a shard: the last component of its path, without the suffix of its container format; of a file that
    stands for its directory, that of the directory.
    """
    if _container(path, files) is _KALDI:
        path = os.path.dirname(path)
    name = shown_name(path)
    return name if _container(path, files) is _DIRECTORY else name.removesuffix(_suffix(path))


def _container(path: str, files: Files) -> Container:
    """The container of a shard with these files; by its name, if it has none, because it is missing."""
    name, files = os.path.basename(path), single.without_lists(files)
    if files and name not in files:  # the names in a directory, not its own
        return _LANCE if lance_files.is_lance(files) else _DIRECTORY
    # Cuts without a number are a Shar only with fields.
    is_shar = shar_files.is_cuts(name) and (shar_files.shar_number(name) or len(files) > 1)
    return _SHAR if is_shar else _container_by_suffix(path)


def _container_by_suffix(path: str) -> Container:
    if os.path.basename(path) == single.RECORDINGS:
        return _KALDI
    return _BY_SUFFIX.get(_suffix(path), _DIRECTORY)


def _suffix(path: str) -> str:
    name = os.path.basename(path)
    return next((suffix for suffix in _BY_SUFFIX if name.endswith(suffix) and name != suffix), "")


if TYPE_CHECKING:
    from touchfs.shard import compressed, jsonl, megatron, tar, touchnet
    from touchfs.shard.lists import wav_scp
    from touchfs.shard.shar import shard as shar
    from touchfs.shard.tables import arrow, parquet

    _: list[type[ShardReader]] = [
        touchnet.TouchNetShard,
        megatron.MegatronShard,
        tar.TarShard,
        jsonl.JsonlShard,
        wav_scp.KaldiShard,
        shar.SharShard,
    ]
    __: list[type[ShardReader]] = [compressed.CompressedShard, arrow.ArrowShard, parquet.ParquetShard]
