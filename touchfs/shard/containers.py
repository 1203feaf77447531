"""The kinds of shards: one row for each says how its files are named, what users call it, and what reads it.

Whoever asks which kind a name is asks here. Letters of suffixes may be capital ones, as other systems write them. The
functions of a row import their modules when they are called: a dataset needs one reader or two, and an indexed one
none of most kinds.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from touchfs.format.idx import INDEX_SUFFIX, MAGIC
from touchfs.format.parquet import PARQUET_SUFFIXES
from touchfs.posix.paths import shown_name
from touchfs.sample import Field, StoredSample
from touchfs.shard import single
from touchfs.shard.options import Options
from touchfs.shard.shar import files as shar_files
from touchfs.shard.tables import files as arrow_files
from touchfs.shard.tables import lance_files
from touchfs.shard.tables.files import ARROW_SUFFIXES
from touchfs.source.decompressed import GZIP_LINES_SUFFIXES, LINES_SUFFIXES, OTHER_LINES_SUFFIXES, TAR_SUFFIXES
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import Store, StoredFile


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
    """One kind of shard.

    `name` is that for users, and `words` is what an error tells them that touchfs reads. `suffixes`, in small letters,
    end the names of its files; `magics` are first bytes, and what a file is that has them. With `is_single` each such
    file is a shard; with `is_streamed` it is read line by line without an index. The rest are the functions that read
    its shards, and facts about them.
    """

    name: str
    words: str
    suffixes: tuple[str, ...]
    open: Callable[[str, Options, Files], ShardReader]
    fingerprints: Callable[[str, Store], dict[str, Fingerprint]]
    open_source: Callable[[str, str, Files], StoredFile]
    compressed_files: Callable[[str, Files], dict[str, Fingerprint]] = lambda path, files: {}
    column_types: Callable[[str, Files], dict[str, str]] | None = None
    magics: tuple[tuple[bytes, str], ...] = ()
    is_single: bool = False
    is_streamed: bool = False
    keys_are_paths: bool = False


def _of(name: str) -> Callable[..., Any]:
    """A class or function below `touchfs.shard`."""
    module, _, attribute = name.rpartition(".")

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(f"touchfs.shard.{module}"), attribute)(*arguments)

    return call


def _compressed(
    plain: str, suffixes: tuple[str, ...], *, is_streamed: bool = False, keys_are_paths: bool = False
) -> Container:
    return Container(
        name=f"compressed {plain}",
        words="",
        suffixes=suffixes,
        open=_of("compressed.CompressedShard"),
        fingerprints=single.fingerprints,
        open_source=_of("compressed.open_source"),
        compressed_files=_of("compressed.compressed_files"),
        is_single=True,
        is_streamed=is_streamed,
        keys_are_paths=keys_are_paths,
    )


DIRECTORY = Container(
    name="TouchDataset (.bin/.idx)",
    words="directories of them",
    suffixes=(),
    open=_of("touchnet.TouchNetShard"),
    fingerprints=_of("touchnet.fingerprints"),
    open_source=_of("touchnet.open_source"),
)
MEGATRON = Container(
    name="Megatron-LM (.bin/.idx)",
    words=".bin/.idx",
    suffixes=(INDEX_SUFFIX,),
    magics=((MAGIC, "the index of a .bin"),),
    open=_of("megatron.MegatronShard"),
    fingerprints=_of("megatron.fingerprints"),
    open_source=_of("megatron.open_source"),
)
TAR = Container(
    name="tar",
    words=".tar and .jsonl (compressed too)",
    suffixes=(".tar",),
    open=_of("tar.TarShard"),
    fingerprints=single.fingerprints,
    open_source=single.open_source,
    is_single=True,
    keys_are_paths=True,
)
LINES = Container(
    name="JSON lines",
    words="",
    suffixes=LINES_SUFFIXES,
    open=_of("jsonl.JsonlShard"),
    fingerprints=single.fingerprints,
    open_source=single.open_source,
    is_single=True,
    is_streamed=True,
)
COMPRESSED_TAR = _compressed("tar", TAR_SUFFIXES, keys_are_paths=True)
GZIP_LINES = _compressed("JSON lines", GZIP_LINES_SUFFIXES, is_streamed=True)
OTHER_LINES = _compressed("JSON lines", OTHER_LINES_SUFFIXES)
ARROW = Container(
    name="Arrow",
    words=".arrow",
    suffixes=ARROW_SUFFIXES,
    magics=((b"ARROW1", "an Arrow file"), (b"\xff\xff\xff\xff", "an Arrow stream")),
    open=_of("tables.arrow.ArrowShard"),
    fingerprints=arrow_files.fingerprints,
    open_source=single.open_source,
    column_types=arrow_files.column_types,
    is_single=True,
)
PARQUET = Container(
    name="Parquet",
    words=".parquet",
    suffixes=PARQUET_SUFFIXES,
    magics=((b"PAR1", "a Parquet file"),),
    open=_of("tables.parquet.ParquetShard"),
    fingerprints=single.fingerprints,
    open_source=single.open_source,
    column_types=arrow_files.parquet_column_types,
    is_single=True,
)
SHAR = Container(
    name="Lhotse Shar",
    words="Lhotse Shar",
    suffixes=(),
    open=_of("shar.shard.SharShard"),
    fingerprints=shar_files.fingerprints,
    open_source=_of("shar.shard.open_source"),
    compressed_files=_of("shar.shard.compressed_files"),
)
KALDI = Container(
    name="Kaldi data directory",
    words="",
    suffixes=(),
    open=_of("lists.wav_scp.KaldiShard"),
    fingerprints=_of("lists.wav_scp.fingerprints"),
    open_source=single.open_source,
)
LANCE = Container(
    name="Lance dataset",
    words="Lance datasets",
    suffixes=(lance_files.SUFFIX,),
    open=_of("tables.lance.open_lance_shard"),
    fingerprints=lance_files.fingerprints,
    open_source=lance_files.open_source,
    column_types=arrow_files.lance_column_types,
)
CONTAINERS = (
    MEGATRON,
    TAR,
    LINES,
    COMPRESSED_TAR,
    GZIP_LINES,
    OTHER_LINES,
    ARROW,
    PARQUET,
    DIRECTORY,
    SHAR,
    KALDI,
    LANCE,
)
READS = f"touchfs reads {', '.join(each.words for each in CONTAINERS if each.words)}, and a data.list"

_BY_SUFFIX = {suffix: container for container in CONTAINERS for suffix in container.suffixes}
_SUFFIXES = tuple(_BY_SUFFIX)


def container_named(path: str) -> Container | None:
    """The kind of shard that the last component of a path is named like; None if it is named like none."""
    if os.path.basename(path) == single.RECORDINGS:
        return KALDI
    return _BY_SUFFIX.get(_suffix(path))


def single_named(path: str) -> Container | None:
    """The kind of a file that is a shard by its name; None if it is no shard, or only a part of one."""
    container = container_named(path)
    return container if container is not None and container.is_single else None


def plain_stem(path: str) -> str:
    """The last component of a path, as a file of this machine would have it, without the suffix of its kind."""
    name = shown_name(path)
    return name[: len(name) - len(_suffix(path))]


def _suffix(path: str) -> str:
    name = os.path.basename(path).lower()
    if not name.endswith(_SUFFIXES):
        return ""
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
