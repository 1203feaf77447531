"""The kinds of shards: one row for each says how its files are named, what users call it, and what reads it.

Which kind a name is, is asked here. Letters of suffixes may be capital ones, as other systems write them. The
functions of a row import their modules when they are called: a dataset needs one reader or two, and an indexed one
none of most kinds.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from touchfs.containers.shar import files as shar_files
from touchfs.containers.tar.layout import TAR_SUFFIX
from touchfs.format.idx import INDEX_SUFFIX, MAGIC
from touchfs.shard import single
from touchfs.shard.options import Options
from touchfs.shard.sample import ShardReader
from touchfs.source.decompressed import GZIP_LINES_SUFFIXES, LINES_SUFFIXES, OTHER_LINES_SUFFIXES, TAR_SUFFIXES
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import Store, StoredFile
from touchfs.tables.parquet.layout import PARQUET_SUFFIXES
from touchfs.tables.shards import files as arrow_files
from touchfs.tables.shards import lance_files
from touchfs.tables.shards.files import ARROW_SUFFIXES


class Container(NamedTuple):
    """One kind of shard.

    `name` is that for users, and `words` is what an error tells them that touchfs reads. `suffixes`, in small letters,
    end the names of its files; `magics` are first bytes, and what a file is that has them. With `is_single` each such
    file is a shard; with `is_compressed` it is decompressed before; with `is_streamed` it is read line by line without
    an index; with `is_divided` opening it reads none of its data, so several processes may each open it for a part.
    Where the name does not decide, `instead` looks into the file and says what else it is, "" if it is a shard: in a
    directory, such files are shards only if no others are. The rest are the functions that read its shards, and facts
    about them.
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
    instead: Callable[[str], str] | None = None
    is_single: bool = False
    is_compressed: bool = False
    is_streamed: bool = False
    keys_are_paths: bool = False
    is_divided: bool = False

    def __reduce__(self) -> tuple[Callable[[int], Container], tuple[int]]:
        """In another process it is the same row: its functions cannot be pickled."""
        return _row, (CONTAINERS.index(self),)


def _row(number: int) -> Container:
    return CONTAINERS[number]


def _of(name: str) -> Callable[..., Any]:
    module, _, attribute = name.rpartition(".")

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), attribute)(*arguments)

    return call


def _compressed(
    plain: str, suffixes: tuple[str, ...], reader: str, *, is_streamed: bool = False, keys_are_paths: bool = False
) -> Container:
    return Container(
        name=f"compressed {plain}",
        words="",
        suffixes=suffixes,
        open=_of(f"touchfs.registry.compressed.{reader}"),
        fingerprints=single.fingerprints,
        open_source=_of("touchfs.registry.compressed.open_source"),
        compressed_files=_of("touchfs.registry.compressed.compressed_files"),
        is_single=True,
        is_compressed=True,
        is_streamed=is_streamed,
        keys_are_paths=keys_are_paths,
    )


DIRECTORY = Container(
    name="TouchDataset (.bin/.idx)",
    words="directories of them",
    suffixes=(),
    open=_of("touchfs.containers.touchnet.reader.TouchNetShard"),
    fingerprints=_of("touchfs.containers.touchnet.reader.fingerprints"),
    open_source=_of("touchfs.containers.touchnet.reader.open_source"),
    is_divided=True,
)
MEGATRON = Container(
    name="Megatron-LM (.bin/.idx)",
    words=".bin/.idx",
    suffixes=(INDEX_SUFFIX,),
    magics=((MAGIC, "the index of a .bin"),),
    open=_of("touchfs.containers.touchnet.megatron.MegatronShard"),
    fingerprints=_of("touchfs.containers.touchnet.megatron.fingerprints"),
    open_source=_of("touchfs.containers.touchnet.megatron.open_source"),
)
TAR = Container(
    name="tar",
    words=".tar and .jsonl (compressed too)",
    suffixes=(TAR_SUFFIX,),
    open=_of("touchfs.containers.tar.reader.TarShard"),
    fingerprints=single.fingerprints,
    open_source=single.open_source,
    is_single=True,
    keys_are_paths=True,
)
LINES = Container(
    name="JSON lines",
    words="",
    suffixes=LINES_SUFFIXES,
    open=_of("touchfs.containers.lines.reader.JsonlShard"),
    fingerprints=single.fingerprints,
    open_source=single.open_source,
    is_single=True,
    is_streamed=True,
    is_divided=True,
)
COMPRESSED_TAR = _compressed("tar", TAR_SUFFIXES, "CompressedTar", keys_are_paths=True)
GZIP_LINES = _compressed("JSON lines", GZIP_LINES_SUFFIXES, "CompressedLines", is_streamed=True)
OTHER_LINES = _compressed("JSON lines", OTHER_LINES_SUFFIXES, "CompressedLines")
ARROW = Container(
    name="Arrow",
    words=".arrow",
    suffixes=ARROW_SUFFIXES,
    magics=((b"ARROW1", "an Arrow file"), (b"\xff\xff\xff\xff", "an Arrow stream")),
    open=_of("touchfs.tables.shards.arrow.ArrowShard"),
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
    open=_of("touchfs.tables.shards.parquet.ParquetShard"),
    fingerprints=single.fingerprints,
    open_source=single.open_source,
    column_types=arrow_files.parquet_column_types,
    is_single=True,
)
SHAR = Container(
    name="Lhotse Shar",
    words="Lhotse Shar",
    suffixes=(),
    open=_of("touchfs.containers.shar.reader.SharShard"),
    fingerprints=shar_files.fingerprints,
    open_source=_of("touchfs.containers.shar.reader.open_source"),
    compressed_files=_of("touchfs.containers.shar.reader.compressed_files"),
)
KALDI = Container(
    name="Kaldi data directory",
    words="",
    suffixes=(),
    open=_of("touchfs.containers.lines.wav_scp.KaldiShard"),
    fingerprints=_of("touchfs.containers.lines.wav_scp.fingerprints"),
    open_source=single.open_source,
)
LANCE = Container(
    name="Lance dataset",
    words="Lance datasets",
    suffixes=(lance_files.SUFFIX,),
    open=_of("touchfs.tables.shards.lance.open_lance_shard"),
    fingerprints=lance_files.fingerprints,
    open_source=lance_files.open_source,
    column_types=arrow_files.lance_column_types,
)
ZIP = Container(
    name="ZIP",
    words=".zip of samples",
    suffixes=(".zip",),
    magics=((b"PK\x03\x04", "a zip archive"), (b"PK\x05\x06", "a zip archive")),
    open=_of("touchfs.registry.directory.zip_archives.open_shard"),
    fingerprints=single.fingerprints,
    open_source=_of("touchfs.containers.zip.reader.open_source"),
    instead=_of("touchfs.registry.directory.zip_archives.instead"),
    is_single=True,
    keys_are_paths=True,
)
# Manifests of NeMo are called so. Any other JSON has the same name.
AUDIO_LIST = Container(
    name="JSON lines",
    words="",
    suffixes=(".json",),
    open=_of("touchfs.containers.lines.reader.JsonlShard"),
    fingerprints=single.fingerprints,
    open_source=single.open_source,
    instead=_of("touchfs.registry.directory.audio_lists.instead"),
    is_single=True,
    is_streamed=True,
    is_divided=True,
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
    ZIP,
    AUDIO_LIST,
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


def is_compressed(path: str) -> bool:
    """True if a file of this name is a shard that has to be decompressed first."""
    container = container_named(path)
    return container is not None and container.is_compressed


def plain_stem(name: str) -> str:
    """The name of a file without the suffix of its kind."""
    return name[: len(name) - len(_suffix(name))]


def _suffix(path: str) -> str:
    name = os.path.basename(path).lower()
    if not name.endswith(_SUFFIXES):
        return ""
    return next((suffix for suffix in _BY_SUFFIX if name.endswith(suffix) and name != suffix), "")


if TYPE_CHECKING:
    from touchfs.containers.lines import reader as jsonl
    from touchfs.containers.lines import wav_scp
    from touchfs.containers.shar import reader as shar
    from touchfs.containers.tar import reader as tar
    from touchfs.containers.touchnet import megatron
    from touchfs.containers.touchnet import reader as touchnet
    from touchfs.containers.zip import reader as zip_shard
    from touchfs.registry import compressed
    from touchfs.tables.shards import arrow, parquet

    _: list[type[ShardReader]] = [
        touchnet.TouchNetShard,
        megatron.MegatronShard,
        tar.TarShard,
        jsonl.JsonlShard,
        wav_scp.KaldiShard,
        shar.SharShard,
    ]
    __: list[type[ShardReader]] = [
        compressed.CompressedTar,
        compressed.CompressedLines,
        arrow.ArrowShard,
        parquet.ParquetShard,
        zip_shard.ZipShard,
    ]
