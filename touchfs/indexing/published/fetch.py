"""Copy what a published index has to the index of this machine.

Nothing of it is believed for what it says about itself. A file is copied if it is of the shard's present version, and
has the bytes that the listing was written for; opening it checks the rest, as for any index file. Who may
write beside the data may change the data, so more would not help.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from touchfs.core.errors import FormatError, NotFoundError, SourceError, TouchfsError
from touchfs.core.location import Location
from touchfs.core.urls import shown
from touchfs.dataset import counted
from touchfs.indexing.interleaved import items_suffix
from touchfs.indexing.place import make_place
from touchfs.indexing.preparing import CATALOG_SUFFIX
from touchfs.indexing.published.listing import (
    DIGEST_SIZE,
    KEYS_SUFFIX,
    LISTING_MAX,
    PackedFile,
    PackListing,
    listing_name,
    parse_listing,
    relative,
    version_of,
)
from touchfs.posix.atomic import TEMPORARY_PREFIX, sync, sync_file_system, write_error
from touchfs.posix.trust import INDEX_DIRECTORY
from touchfs.registry.directory.members import directory_of
from touchfs.shard.options import Options
from touchfs.source.data import DATA, find_type
from touchfs.source.fingerprint import Files
from touchfs.source.store import FileType, Store, StoredFile

INDEX_VARIABLE = "TOUCHFS_INDEX"
# Bytes of a pack in memory.
_WINDOW = 1 << 22

log = logging.getLogger(__name__)


class Fetched(NamedTuple):
    """Paths of shards: those whose catalogs were copied, and those that are known to have no interleaved samples."""

    catalogs: frozenset[str] = frozenset()
    without_items: frozenset[str] = frozenset()


def published_beside(source: Location, store: Store = DATA) -> str:
    """The prefix of an index beside the data; "" if that is an archive."""
    if source.inside is not None:
        return ""
    return os.path.join(directory_of(source, store), INDEX_DIRECTORY)


def fetch_index(
    source: Location,
    options: Options,
    shards: Mapping[str, tuple[Files, str]],
    look: Store,
    index_path: Callable[[str, str], str],
    keys: str,
) -> Fetched:
    """Copy the index files of these shards from a published index of the source, if there is one that fits.

    `shards` are fingerprints and values of directories by path, `index_path(path, suffix)` is where an index file of a
    shard belongs, and `keys` where the index of keys does, "" if that is not needed. What is wrong with the published
    index is logged. Raises UnwritableError or SourceError if no index can be kept on this machine.
    """
    named = os.environ.get(INDEX_VARIABLE, "")
    # Also if this machine has the whole index, because the name is probably wrong. To ask a URL would cost a request.
    if named and not Location.of(named).is_url and find_type(named) is not FileType.DIRECTORY:
        log.warning("%s: no such directory, so no index is taken from it", shown(named))
        return Fetched()
    prefix = named or (published_beside(source, look) if source.is_url else "")
    listing = _listing(prefix, options) if prefix and shards else None
    if listing is None:
        return Fetched()
    directory = directory_of(source, look)
    paths = {relative(path, directory): path for path in shards}
    versions = {path: (version_of(*each), version_of(*each, path)) for path, each in shards.items()}
    suffixes = CATALOG_SUFFIX, items_suffix(options)
    fitting = [
        file
        for file in listing.files
        if file.suffix in suffixes and (path := paths.get(file.path)) and file.version in versions[path]
    ]
    unfit = set(shards) - {paths[file.path] for file in fitting if file.suffix == CATALOG_SUFFIX}
    if named and unfit:
        what = f"{counted(len(unfit), 'shard')} of {source.shown}, such as {os.path.basename(min(unfit))}"
        advice = "write it again by `touchfs index --output` with these options"
        log.warning("%s: its index does not fit %s: indexing; %s", shown(prefix), what, advice)
    targets = {file: index_path(paths[file.path], file.suffix) for file in fitting if file.digest}
    # Keys name their shards by whole paths, which are others if the data are in another place.
    if keys and listing.source == source.shown and not os.path.lexists(keys):
        targets |= {file: keys for file in listing.files if not file.path and file.suffix == KEYS_SUFFIX}
    place = os.path.dirname(index_path(source.path, ""))
    copied = _copy(prefix, listing, targets, place) if targets else []
    return Fetched(
        frozenset(paths[file.path] for file in copied if file.suffix == CATALOG_SUFFIX),
        frozenset(paths[file.path] for file in fitting if not file.digest),
    )


def _listing(prefix: str, options: Options) -> PackListing | None:
    path = os.path.join(prefix, listing_name(options))
    try:
        file = DATA.open(path)
        if file.size > LISTING_MAX:
            raise FormatError(f"its listing has {file.size:,} bytes", path=path)
        return parse_listing(file.read(0, file.size))
    except NotFoundError:
        if INDEX_VARIABLE in os.environ:
            log.warning("%s: has no index for these options: indexing", shown(prefix))
    except TouchfsError as error:
        # Where nobody said that there is one, a store may refuse to look: a signed URL is for one file.
        is_expected = INDEX_VARIABLE not in os.environ and isinstance(error, SourceError)
        log.log(
            logging.DEBUG if is_expected else logging.WARNING,
            "%s: its index is not used: %s: indexing",
            shown(prefix),
            error.message,
        )
    return None


def _copy(prefix: str, listing: PackListing, targets: Mapping[PackedFile, str], place: str) -> list[PackedFile]:
    """Copy files of a pack to their targets in the directory `place`. Returns those before the first damaged one.

    All are flushed to the disk before the first gets its name. Raises UnwritableError or SourceError.
    """
    make_place(place)
    files, copied = sorted(targets, key=lambda file: file.offset), list[PackedFile]()
    try:
        with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=place) as scratch:
            try:
                copied.extend(_unpack(os.path.join(prefix, listing.pack), listing.size, files, scratch))
            except TouchfsError as error:
                log.warning("%s: not all of its index is used: %s: indexing", shown(prefix), error.message)
            sync_file_system(scratch)
            for file in copied:
                os.replace(os.path.join(scratch, str(file.offset)), targets[file])
            sync(Path(place))
    except OSError as error:
        raise write_error(error, f"no index can be written: {error.strerror}", place) from error
    return copied


class _Window:
    """Reads a pack from its start to its end, some megabytes at a time."""

    def __init__(self, file: StoredFile, end: int) -> None:
        self._file = file
        self._end = end
        self._start, self._data = 0, b""

    def pieces(self, offset: int, size: int) -> Iterator[bytes]:
        """These bytes, which follow those of earlier calls."""
        stop = offset + size
        while offset < stop:
            if not self._start <= offset < self._start + len(self._data):
                self._start, self._data = offset, bytes(self._file.read(offset, min(_WINDOW, self._end - offset)))
            piece = self._data[offset - self._start : stop - self._start]
            offset += len(piece)
            yield piece


def _unpack(pack: str, size: int, files: Sequence[PackedFile], directory: str) -> Iterator[PackedFile]:
    """Copy files of a pack of this size, in order of offsets, into a directory of ours, each under its offset as name.
    Yields each that is complete.

    Raises FormatError, ChangedError, NotFoundError or SourceError, and OSError from writing.
    """
    if (needed := sum(file.size for file in files)) > shutil.disk_usage(directory).free // 2:
        raise SourceError(f"{needed:,} bytes would take more than half of the free disk space", path=pack)
    source = DATA.open(pack)
    if source.size != size:
        raise FormatError(f"its pack has {source.size:,} bytes, not {size:,}", path=pack)
    window = _Window(source, files[-1].offset + files[-1].size)
    for file in files:
        digest = hashlib.blake2b(digest_size=DIGEST_SIZE)
        with open(os.path.join(directory, str(file.offset)), "xb", opener=_open_private) as copy:
            for piece in window.pieces(file.offset, file.size):
                digest.update(piece)
                copy.write(piece)
        if digest.hexdigest() != file.digest:
            raise FormatError("its checksum is wrong", path=pack, offset=file.offset)
        yield file


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
