"""`TouchFileSystem`: what fsspec calls for `touchfs://`. It is read-only, and any number of threads may use it."""

from __future__ import annotations

import datetime
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

from fsspec import AbstractFileSystem
from fsspec.transaction import Transaction

from touchfs.core.errors import ArgumentTypeError, TouchfsError
from touchfs.core.extent import Content
from touchfs.core.location import Location, parse_audio_root
from touchfs.core.urls import shown
from touchfs.filesystem.file import BUFFER_SIZE, TouchFile, os_error_of
from touchfs.filesystem.shared_tree import shared_tree
from touchfs.filesystem.source import target_source
from touchfs.indexing.overlays.named import spell_overlay
from touchfs.limits import Limits
from touchfs.posix.threads import run_at_once
from touchfs.shard.options import Options
from touchfs.source.remote.storage_options import give_options
from touchfs.tree.by_path import known_entry
from touchfs.tree.entry import Entry

# Threads that read several files: as many requests to a store at once.
_READERS = 16
# Options of all filesystems, which fsspec itself uses.
_COMMON = frozenset({"asynchronous", "listings_expiry_time", "loop", "max_paths", "use_listings_cache"})


class _NoTransaction(Transaction):  # type: ignore[misc]  # fsspec has no types
    """The transaction of a read-only filesystem: `with filesystem.transaction` raises."""

    def start(self) -> None:
        """Raise the error of a read-only filesystem."""
        self.fs._refuse()


class TouchFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The files that a mount of a dataset shows. Symbolic links are followed, so a file in `by-key/` is a file.

    `fo` is the dataset: a path, or a URL as for `touchfs mount`; `target_protocol` and `target_options` are set by
    fsspec for a chain of URLs. The other options are those of `touchfs.open`. The dataset is opened, and indexed if it
    must be, when the filesystem is used first.

    Methods that write raise OSError with EROFS. An error of reading is an OSError with the errno that a mount gives:
    ESTALE for a dataset that has changed. `invalidate_cache` opens it again.
    """

    protocol: ClassVar[str] = "touchfs"
    root_marker = ""

    def __init__(
        self,
        fo: str | os.PathLike[str] = "",
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        *,
        audio_root: str | os.PathLike[str] | None = None,
        key_column: str | None = None,
        layout: str | None = None,
        features: str | None = None,
        split: str | None = None,
        overlay: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        **storage_options: Any,
    ) -> None:
        if unknown := sorted(storage_options.keys() - _COMMON):
            raise ArgumentTypeError(
                f"touchfs:// has no option {unknown[0]!r}; those of the store go to target_options={{…}}, "
                "or in a chain of URLs to s3={…}"
            )
        super().__init__(**storage_options)
        source = target_source(os.fspath(fo), target_protocol, target_options)
        give_options(source.stored, source.options)
        beside = os.path.dirname(source.stored.rstrip("/"))  # an index, and files that belong to a shard
        if Location.of(beside).is_url:
            give_options(beside, source.options)
        limits = Limits() if audio_root is None else Limits().with_audio(*parse_audio_root(audio_root))
        self._source = source.path
        overlays = tuple(map(spell_overlay, [overlay] if isinstance(overlay, str | os.PathLike) else overlay))
        self._named = {
            "fo": source.path,
            "target_options": source.options or None,
            "audio_root": limits.audio,
            "overlay": overlays or None,
        }
        options = Options(limits=limits, key_column=key_column, layout=layout, features=features, split=split)
        self._shared = shared_tree(self._source, replace(options, overlays=overlays))

    # fsspec sets these two to what it was given. A copy in another process is made of them, where a relative path may
    # lead to another dataset.

    @property
    def storage_options(self) -> dict[str, Any]:
        """The options from which this filesystem can be made again, with absolute paths."""
        return self._storage_options

    @storage_options.setter
    def storage_options(self, given: dict[str, Any]) -> None:
        others = {name: value for name, value in given.items() if name not in (*self._named, "target_protocol")}
        self._storage_options = {name: value for name, value in self._named.items() if value is not None} | others

    @property
    def storage_args(self) -> tuple[Any, ...]:
        """None: they are among the options."""
        return ()

    @storage_args.setter
    def storage_args(self, given: tuple[Any, ...]) -> None:
        pass

    def du(self, path: str, total: bool = True, **kwargs: Any) -> Any:
        """The bytes of all files below a path, or of each with `total=False`. A size that is not known counts as 0."""
        sizes: dict[str, int | None] = super().du(path, total=False, **kwargs)
        return sum(size or 0 for size in sizes.values()) if total else sizes

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        if path.startswith("touchfs://"):  # what is no URL may have `::` in its name
            path = path.partition("::")[0].removeprefix("touchfs://")
        return "/".join(part for part in path.split("/") if part not in ("", "."))

    @property
    def fsid(self) -> str:
        """The name of the filesystem: that of its dataset, without secrets."""
        return f"touchfs_{shown(self._source)}"

    def invalidate_cache(self, path: str | None = None) -> None:
        """Open the dataset again at its next use, so that new and changed shards are seen."""
        self._shared.forget()
        super().invalidate_cache(path)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """`name`, `size` in bytes, `type` ("file" or "directory"), `mtime` in seconds since 1970, `ino` and `etag`.

        No other version of the file has its `etag`. An inode number may be another one in the next call.
        The size is None for a file made from a recording that cannot be read. Raises FileNotFoundError.
        """
        path = self._strip_protocol(path)
        with _os_errors(path):
            return self._info(path, self._shared.get().current().resolve(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """What is in a directory, or a file itself: the `info` of each, or with `detail=False` their paths."""
        path = self._strip_protocol(path)
        with _os_errors(path):
            tree = self._shared.get().current()
            directory = tree.resolve(path)
            if not directory.is_directory:
                return [self._info(path, directory) if detail else path]
            prefix = f"{path}/" if path else ""
            listed = ((prefix + os.fsdecode(name), entry) for name, entry, _ in tree.entries(directory.inode))
            if not detail:
                return [name for name, _ in listed]
            above = os.fsencode(path)
            return [self._info(name, known_entry(tree, above, entry)) for name, entry in listed]

    def walk(self, path: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        """As fsspec's, which also finds files and globs by it. It omits directories that cannot be listed, but raises
        OSError if the dataset cannot be opened.
        """
        with _os_errors(self._strip_protocol(path)):
            self._shared.get().current()
        walk: Iterator[Any] = super().walk(path, *arguments, **options)
        return walk

    def exists(self, path: str, **kwargs: Any) -> bool:
        """True if there is a file or directory. Raises OSError if that cannot be told."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def ukey(self, path: str) -> str:
        """A text that changes with the file."""
        return str(self.info(path)["etag"])

    def checksum(self, path: str) -> int:
        """A number that changes with the file."""
        return int(self.ukey(path), 16)

    def modified(self, path: str) -> datetime.datetime:
        """When the shard of a file was changed."""
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.UTC)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """The bytes of a file from `start` to `end`, which count from its end if they are negative."""
        path = self._strip_protocol(path)
        with _os_errors(path):
            content = self._content(path)
            first, last, _ = slice(start, end).indices(content.size)
            return bytes(content.read(first, max(last - first, 0)))

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """As fsspec's: the bytes of a file, or by path those of several, which are read at once."""
        paths = self.expand_path(path, recursive=recursive)
        if not isinstance(path, list) and paths == [self._strip_protocol(path)]:
            return self.cat_file(paths[0], **kwargs)
        if recursive:
            paths = [each for each in paths if not self.isdir(each)]
        wanted = [(each, kwargs.get("start"), kwargs.get("end")) for each in paths]
        found = zip(paths, self._read_several(wanted, on_error == "raise"), strict=True)
        return {each: data for each, data in found if on_error != "omit" or isinstance(data, bytes)}

    def cat_ranges(
        self, paths: list[str], starts: Any, ends: Any, max_gap: None = None, on_error: str = "return", **kwargs: Any
    ) -> list[bytes | Exception]:
        """As fsspec's: the bytes of several ranges, which are read at once, or errors in their places."""
        if max_gap is not None:
            raise NotImplementedError("max_gap: ranges are merged by blocks of 1 MiB")
        starts, ends = (each if isinstance(each, list) else [each] * len(paths) for each in (starts, ends))
        return self._read_several(list(zip(paths, starts, ends, strict=True)), on_error != "return")

    def _read_several(
        self, wanted: list[tuple[str, int | None, int | None]], is_raising: bool
    ) -> list[bytes | Exception]:
        """What each range of a file has, in order. An error is raised or in its place."""

        def read(each: tuple[str, int | None, int | None]) -> bytes | Exception:
            try:
                return self.cat_file(*each)
            except Exception as error:
                if is_raising:
                    raise
                return error

        return run_at_once(read, wanted, _READERS)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> TouchFile:
        if mode != "rb":
            self._refuse(path)
        with _os_errors(path):
            buffer_size = block_size if block_size and block_size > 0 else BUFFER_SIZE
            return TouchFile(self, path, self._content(path), buffer_size)

    def _content(self, path: str) -> Content:
        tree = self._shared.get().current()
        entry = tree.resolve(path)
        if entry.is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return tree.content(entry.inode)

    def _info(self, path: str, entry: Entry) -> dict[str, Any]:
        return {
            "name": path,
            "size": 0 if entry.is_directory else entry.size,
            "type": "directory" if entry.is_directory else "file",
            "mtime": entry.mtime_ns / 1e9,
            "ino": entry.inode,
            "etag": self._shared.get().version(os.fsencode(path), entry),
        }

    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        path = arguments[0] if arguments else ""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path if isinstance(path, str) else "")

    mkdir = makedirs = rmdir = rm = rm_file = _rm = mv = copy = cp_file = put = put_file = pipe = pipe_file = touch = (
        _refuse
    )
    start_transaction = _refuse
    transaction_type = _NoTransaction


@contextmanager
def _os_errors(path: str) -> Iterator[None]:
    try:
        yield
    except TouchfsError as error:
        raise os_error_of(error, path) from error
