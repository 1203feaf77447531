"""Publish a cache: it is built in a temporary directory beside its place, and takes the place as a whole.

    with publish(cache_dir) as building:
        ...  # write files below building.path
        building.commit(metadata)

    NAME                          the cache: always the old one or the new one
    NAME.lock                     the builder holds it; so does the original tool. Empty. It stays beside a cache.
    NAME.build.lock               the process that decides whether to build holds it (`build_once`)
    .NAME_tmp_0123456789abcdef    what is being built; or an old cache that somebody still reads
    .NAME_inputs_0123456789abcdef files that are needed only while building

Who builds removes what killed builders left behind, and old caches that nobody holds any more.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from touchfs.core.errors import TouchfsError, UsageError
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.format.cache_metadata.build import build_metadata
from touchfs.format.cache_metadata.layouts import CacheMetadata
from touchfs.posix.atomic import is_at, lock_if_possible, write_error
from touchfs.posix.published import SET_ASIDE, hold_directory, publish_directory, remove_unheld

# The original tool's names end in 8 characters. It may be at work, without a lock that says so, so they stay.
_DIGITS = 16


class Building:
    """A cache that is being built at a `place`. `path` is the directory to write into."""

    def __init__(self, place: Path) -> None:
        self.path = _make_directory(place, "tmp")
        self.place = place
        self._inputs: Path | None = None
        self._is_published = False
        # As long as this process lives, nobody takes the directory for one that was left behind.
        self._descriptor = hold_directory(self.path)

    @property
    def inputs(self) -> Path:
        """A directory for files that are needed while building only."""
        if self._inputs is None:
            self._inputs = _make_directory(self.place, "inputs")
        return self._inputs

    def commit(self, metadata: CacheMetadata) -> None:
        """Write the metadata, and put the cache into its place. Raises SourceError."""
        with map_write_errors(self.place):
            (self.path / METADATA_FILE).write_text(build_metadata(metadata), encoding="utf-8")
        self.finish()

    def finish(self) -> None:
        """Put a directory that has no metadata of a cache into its place. Raises SourceError."""
        with map_write_errors(self.place):
            publish_directory(self.path, self.place)
        self._is_published = True

    def close(self) -> None:
        """Remove what was not published. Called by `publish`."""
        os.close(self._descriptor)
        if self._inputs is not None:
            shutil.rmtree(self._inputs, ignore_errors=True)
        if not self._is_published:
            shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def publish(cache_dir: str | os.PathLike[str]) -> Iterator[Building]:
    """Build a cache. Without a commit nothing is left behind, and a cache that is there stays.

    Waits for others that build the same cache. The modes of all files follow the umask. Raises UsageError if something
    else than a cache is at the path, and SourceError.
    """
    # A symbolic link stays, and the cache that it leads to is replaced.
    place = Path(os.path.realpath(cache_dir))
    with ExitStack() as stack:
        with map_write_errors(place):
            stack.enter_context(_locked(place, ".lock"))
            _check_replaceable(place)
            _remove_leftovers(place)
            building = Building(place)
        stack.callback(building.close)
        yield building


def build_once(cache_dir: str | os.PathLike[str], build: Callable[[], object]) -> bool:
    """Call `build`, which writes the cache, unless it is there. Return whether it was called.

    If several processes want the same cache, one builds it, and the others wait for it. If that fails, the next
    one builds. Raises what `build` raises, and SourceError.
    """
    place = Path(os.path.realpath(cache_dir))
    if (place / METADATA_FILE).exists():
        return False
    with ExitStack() as stack:
        with map_write_errors(place):
            stack.enter_context(_locked(place, ".build.lock"))
        if (place / METADATA_FILE).exists():
            return False
        build()
        return True


def _make_directory(place: Path, purpose: str) -> Path:
    path = place.with_name(f".{place.name}_{purpose}_{secrets.token_hex(_DIGITS // 2)}")
    path.mkdir()
    return path


def _check_replaceable(place: Path) -> None:
    """A directory that is no cache is not ours to remove, and may be somebody's home."""
    if os.path.lexists(place) and not (place / METADATA_FILE).exists() and (not place.is_dir() or os.listdir(place)):
        raise UsageError("is not a cache, so it is not replaced: remove it, or choose another path", path=str(place))


def _remove_leftovers(place: Path) -> None:
    ours = re.compile(rf"\.{re.escape(place.name)}_(tmp|inputs)_[0-9a-f]{{{_DIGITS}}}{SET_ASIDE}?")
    with os.scandir(place.parent) as entries:
        found = [Path(entry.path) for entry in entries if ours.fullmatch(entry.name)]
    for path in found:
        if path.name.endswith(SET_ASIDE) and not place.exists():
            os.rename(path, place)
        else:
            remove_unheld(path)


@contextmanager
def _locked(place: Path, suffix: str) -> Iterator[None]:
    """Hold a lock beside a cache, after waiting for it. Where the file system has no locks, nobody waits.

    A lock file that is new is removed if the block fails or there is no cache after it.
    """
    path = place.with_name(f"{place.name}{suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        is_new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            lock_if_possible(descriptor, fcntl.LOCK_EX)
            if is_at(descriptor, path):  # else somebody removed the file, and others lock a new one
                is_built = False
                try:
                    yield
                    is_built = os.path.lexists(place)
                finally:
                    if is_new and not is_built:  # while it is held, so that no other builder holds this file
                        path.unlink(missing_ok=True)
                return
        finally:
            os.close(descriptor)


@contextmanager
def map_write_errors(place: Path) -> Iterator[None]:
    """Raise SourceError for an OSError in the block."""
    try:
        yield
    except TouchfsError:
        raise
    except OSError as error:
        raise write_error(error, f"the cache cannot be written: {error.strerror or error}", place) from error
