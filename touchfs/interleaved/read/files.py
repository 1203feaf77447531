"""The files that a reader of interleaved samples reads, and how they are divided into partitions.

A partition becomes one table, or several if they are limited. By default each file is one. `files_per_partition` takes
so many, in the order of their paths. `blocksize` takes files in the order of their sizes, up to this sum of bytes.

Source: nemo_curator/stages/file_partitioning.py of NeMo Curator 1.4. Unlike there, `.tar.gz` is an extension.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any

from touchfs.core.errors import ArgumentTypeError, ArgumentValueError, NotFoundError
from touchfs.core.location import Location
from touchfs.interleaved.read.store_options import StoreOptions, is_remote
from touchfs.limits import parse_size
from touchfs.source.data import DATA
from touchfs.source.remote.storage_options import give_options
from touchfs.source.store import FileType

log = logging.getLogger(__name__)

# A partition is one task and may be one table in memory, so a larger one is worth a warning.
PARTITION_SIZE = 512 * 10**6
# Directories of other stores are searched so deep: a web server can make up any number of them.
_DEPTH_MAX = 32


@dataclass(frozen=True, slots=True)
class ItemPartition:
    """Files that are read together. `size` is their number of bytes, as far as it is known."""

    files: tuple[str, ...]
    name: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class ItemFiles:
    """The files of a reader: a path, a directory with all below it, a glob, or a list of these, whose directories are
    not searched below their first level. Raises ArgumentValueError if both ways to divide them are given.
    """

    paths: str | Sequence[str]
    extensions: tuple[str, ...]
    files_per_partition: int | None = None
    blocksize: int | str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.paths, bytes) or not isinstance(self.paths, str | os.PathLike | Sequence):
            raise ArgumentTypeError(f"file_paths is a path or a list of paths, not {type(self.paths).__name__}")
        if self.files_per_partition is not None and self.blocksize is not None:
            raise ArgumentValueError("files_per_partition and blocksize exclude each other: give one of them")
        if self.files_per_partition is not None and self.files_per_partition < 1:
            raise ArgumentValueError(f"files_per_partition must be > 0, got {self.files_per_partition}")
        if self.blocksize is not None and self._blocksize < 1:
            raise ArgumentValueError(f"blocksize must be > 0, got {self.blocksize}")

    def partitions(self, options: StoreOptions | None = None) -> list[ItemPartition]:
        """Return the partitions. A warning says if there are no files, or if a partition is over the size limit.

        Raises NotFoundError for a path at which nothing is.
        """
        found = dict(self._find(options or StoreOptions(self.all_paths(), {})))
        order = sorted(found, key=lambda path: (found[path] if self.blocksize is not None else 0, path))
        if not order:
            log.warning("no files with the extensions %s below %s", " ".join(self.extensions), self.paths)
        return [_partition(group, found, self._blocksize) for group in self._groups(order, found)]

    @property
    def _blocksize(self) -> int:
        if self.blocksize is None:
            return PARTITION_SIZE
        return parse_size(self.blocksize) if isinstance(self.blocksize, str) else int(self.blocksize)

    def all_paths(self) -> list[str]:
        """Return the paths as they are given."""
        paths = [self.paths] if isinstance(self.paths, str | os.PathLike) else self.paths
        return [os.fspath(path) for path in paths]

    def _find(self, options: StoreOptions) -> Iterator[tuple[str, int]]:
        depth = None if isinstance(self.paths, str | os.PathLike) else 1
        for path in self.all_paths():
            yield from self._find_below(path, depth, options.of(path))

    def _find_below(self, path: str, depth: int | None, options: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
        if is_remote(path):
            url = Location.of(path).absolute.path
            give_options(url, options)
            yield from self._find_remote(url, depth or _DEPTH_MAX)
            return
        from fsspec.core import has_magic, url_to_fs

        files, root = url_to_fs(path)
        root = _without_steps_up(root)
        is_glob = has_magic(root)
        for place in sorted(files.glob(root)) if is_glob else [root]:
            if is_glob and not files.isdir(place) and not self._is_wanted(place):
                continue
            if files.isfile(place):
                yield place, _size(files.info(place))
            elif files.isdir(place):
                for name, info in files.find(place, maxdepth=depth, detail=True).items():
                    if self._is_wanted(name):
                        yield name, _size(info)
            else:
                raise NotFoundError("no such file or directory", path=path)

    def _find_remote(self, url: str, depth: int) -> Iterator[tuple[str, int]]:
        directory, _, pattern = url.rpartition("/")
        if "*" in directory:
            raise ArgumentValueError("a pattern for a URL has `*` in its last part only", path=url)
        if "*" not in pattern:
            found = DATA.stat(url)
            if found.type is not FileType.DIRECTORY:
                yield url, found.fingerprint.size
                return
            directory, pattern = url.rstrip("/"), "*"
        for entry in sorted(DATA.list(directory), key=attrgetter("name")):
            place = f"{directory}/{entry.name}"
            if not fnmatchcase(entry.name, pattern):
                continue
            if entry.is_dir() and depth > 1:
                yield from self._find_remote(place, depth - 1)
            elif entry.is_file() and self._is_wanted(place):
                yield place, (entry.status or DATA.stat(place)).fingerprint.size

    def _is_wanted(self, path: str) -> bool:
        """True for a file by its extension, except for hidden ones, which somebody may be writing."""
        name = path.rpartition("/")[2]
        return name.lower().endswith(self.extensions) and not name.startswith(".")

    def _groups(self, order: list[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
        if self.blocksize is None:
            count = self.files_per_partition or 1
            yield from (order[start : start + count] for start in range(0, len(order), count))
            return
        group: list[str] = []
        size = 0
        for path in order:
            if group and size + sizes[path] > self._blocksize:
                yield group
                group, size = [], 0
            group.append(path)
            size += sizes[path]
        if group:
            yield group


def _without_steps_up(path: str) -> str:
    """An absolute path without `..`: locators have it, and those with `..` are not followed.

    As for the kernel, the step up is from where a link leads to.
    """
    above, step, below = f"{path}/".rpartition("/../")
    return os.path.join(os.path.realpath(above + step), below.rstrip("/")) if step else path


def dataset_name(path: str) -> str:
    """Return the name of the dataset that a file belongs to: its directory's."""
    parts = path.rstrip("/").split("/")
    return (parts[-2] if len(parts) > 1 and parts[-2] else parts[-1].partition(".")[0]).lower()


def _partition(group: list[str], sizes: Mapping[str, int], limit: int) -> ItemPartition:
    size = sum(sizes[path] for path in group)
    if size > limit:
        log.warning(
            "%s and what is read with it have %d bytes, over the limit of a partition, %d", group[0], size, limit
        )
    return ItemPartition(tuple(group), group[0].rpartition("/")[2], size)


def _size(info: Mapping[str, Any]) -> int:
    """The size of a file; 0 if its server does not say it."""
    return info.get("size") or 0
