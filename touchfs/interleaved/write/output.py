"""The output of writers of interleaved samples: a directory of this machine, or a store of fsspec's.

A file is built in a directory of its own, on this machine, and moves to its name when it is complete. In a store it is
uploaded under a temporary name first. So a file with a final name is never a part of one, even after a kill.

A writer holds its directory locked. The next writer removes those that killed writers left behind, which nobody holds.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from touchfs.core.errors import ArgumentValueError, OutputExistsError, TouchfsError, UnsupportedModeError, UsageError
from touchfs.posix.atomic import SWAP_PREFIX, TEMPORARY_PREFIX, move_into, sync, write_error
from touchfs.posix.published import hold_directory, remove_unheld

MODES = ("ignore", "overwrite", "error", "append")
# Only files of these kinds are removed to be overwritten. A directory that has others may be somebody's home.
_SUFFIXES = (".parquet", ".tar")


class Output(Protocol):
    """A directory for files."""

    def names(self) -> list[str] | None:
        """Return the names in the directory, with a `/` after those of directories; None if there is none."""
        ...

    def make(self) -> None:
        """Make the directory unless it is there. What killed writers left in it is removed where that can be known."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file."""
        ...

    def new_file(self, name: str) -> AbstractContextManager[Path]:
        """Yield the path of a file to write, and move the file to its name if the block ends without an exception."""
        ...


def open_output(path: str, storage_options: Mapping[str, Any]) -> Output:
    """Return the directory at a path or URL. `storage_options` are fsspec's. Raises UsageError if it has no such."""
    if "://" not in path and "::" not in path:
        return LocalOutput(Path(os.path.abspath(path)))
    import fsspec.core
    from fsspec.implementations.local import LocalFileSystem

    try:
        system, root = fsspec.core.url_to_fs(path, **storage_options)
    except (ValueError, ImportError) as error:
        raise UsageError(f"cannot be written: {error}", path=path) from error
    return LocalOutput(Path(root)) if isinstance(system, LocalFileSystem) else StoreOutput(system, root)


def prepare_output(output: Output, path: str, mode: str) -> None:
    """Make the directory, as the mode says.

    ignore     files with the same names are replaced, others stay
    overwrite  files of earlier runs are removed
    error      OutputExistsError, which is also a FileExistsError, if the directory exists
    append     UnsupportedModeError, which is also a NotImplementedError

    Raises ArgumentValueError for any other mode, UsageError if there are files to overwrite that no writer made, and
    SourceError.
    """
    if mode not in MODES:
        raise ArgumentValueError(f"there is no mode {mode!r}: choose {', '.join(MODES[:3])}")
    if mode == "append":
        raise UnsupportedModeError("the mode append is not implemented: files cannot be appended to", path=path)
    with _write_errors(path):
        names = output.names()
        if mode == "error" and names is not None:
            raise OutputExistsError("the output directory already exists: remove it, or choose a mode", path=path)
        if mode == "overwrite" and names:
            others = [name for name in names if not (name.endswith(_SUFFIXES) or name.startswith(TEMPORARY_PREFIX))]
            if others:
                problem = f"is not overwritten, as it also has {others[0]!r}: remove it, or choose another directory"
                raise UsageError(problem, path=path)
            for name in names:
                output.remove(name)
        output.make()


@contextmanager
def _write_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise UnwritableError or SourceError for an OSError in the block."""
    try:
        yield
    except TouchfsError:
        raise
    except OSError as error:
        raise write_error(error, f"cannot be written: {error.strerror or error}", path) from error


class LocalOutput:
    """A directory of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str] | None:
        try:
            with os.scandir(self._path) as entries:
                return sorted(entry.name + "/" * entry.is_dir() for entry in entries)
        except FileNotFoundError:
            return None

    def make(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        with os.scandir(self._path) as entries:
            found = [entry for entry in entries if entry.name.startswith(TEMPORARY_PREFIX)]
        for entry in found:
            # `touchfs meta put` may have one of the other prefix at work.
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(SWAP_PREFIX):
                remove_unheld(Path(entry.path))

    def remove(self, name: str) -> None:
        """See `Output.remove`. A directory is that of a writer, and stays while it is at work."""
        if name.endswith("/"):
            remove_unheld(self._path / name)
        else:
            (self._path / name).unlink()

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """See `Output.new_file`. Raises UnwritableError or SourceError."""
        with _write_errors(self._path / name), self._locked_directory() as building:
            yield building / name
            sync(building / name)
            move_into(building / name, self._path)

    @contextmanager
    def _locked_directory(self) -> Iterator[Path]:
        path = self._path / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        while True:
            path.mkdir()
            try:
                descriptor = hold_directory(path)
                break
            except FileNotFoundError:  # a writer that began just now took it for one that was left behind
                continue
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)


class StoreOutput:
    """A directory of a store. `system` is the file system of fsspec, and `root` the path in it."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def names(self) -> list[str] | None:
        self._system.invalidate_cache()
        try:
            entries = self._system.ls(self._root, detail=True)
        except FileNotFoundError:
            return None
        names = [
            entry["name"].rstrip("/").rpartition("/")[2] + "/" * (entry["type"] == "directory") for entry in entries
        ]
        return sorted(names)

    def make(self) -> None:
        self._system.makedirs(self._root, exist_ok=True)

    def remove(self, name: str) -> None:
        self._system.rm(f"{self._root}/{name.rstrip('/')}", recursive=name.endswith("/"))

    @contextmanager
    def new_file(self, name: str) -> Iterator[Path]:
        """See `Output.new_file`. Raises SourceError for an OSError; a store may raise errors of its own."""
        target = f"{self._root}/{name}"
        temporary = f"{self._root}/{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        with _write_errors(target), tempfile.TemporaryDirectory(prefix="touchfs-") as building:
            yield Path(building, name)
            try:
                self._system.put_file(os.path.join(building, name), temporary)
                self._system.mv(temporary, target)
            finally:
                if self._system.exists(temporary):
                    self._system.rm_file(temporary)
