"""The overlays that somebody names: `FILE`, or `FILE:COLUMN` for one whose keys are in that column."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from contextlib import closing, suppress
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from touchfs.core.control_characters import quote_name
from touchfs.core.errors import NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.core.location import Location
from touchfs.core.names import OVERLAY_JSON, hex_digest
from touchfs.core.urls import shown
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.registry.containers import plain_stem
from touchfs.registry.find import find
from touchfs.registry.found import FoundShard
from touchfs.source.data import DATA, Look
from touchfs.source.scratch.store import Scratch
from touchfs.source.store import FileType, Status

if TYPE_CHECKING:
    from touchfs.dataset.shard import ListedShard
    from touchfs.indexing.overlays.overlay import Overlay
    from touchfs.shard.options import Options

_VERSION = 1
_NAMED = re.compile(r"(.+\.(?:parquet|jsonl))(?::(.+))?", re.DOTALL)
# In place of a name: also no overlay that is beside its shard
NO_OVERLAY = "none"
_PIECE = 1 << 20
# Overlays that a process has open besides those in use
_OPEN: BoundedCache[Hashable, Overlay] = BoundedCache(4)
_DIGESTS: BoundedCache[Hashable, str] = BoundedCache(64)


class NamedOverlay(NamedTuple):
    """An overlay: its absolute path or URL, the column with its keys, if that is named, and the hash of its bytes.

    That of one shard, which is beside it, has the hash of its fingerprint.
    """

    path: str
    column: str | None
    digest: str
    is_beside: bool = False

    @property
    def extension(self) -> str:
        """The extension of its rows as JSON."""
        return OVERLAY_JSON if self.is_beside else f"{self.name}.{OVERLAY_JSON}"

    @property
    def name(self) -> str:
        """The name of its file without the suffix."""
        return os.path.splitext(os.path.basename(self.path))[0]

    @property
    def shown(self) -> str:
        """Its path for messages."""
        return quote_name(shown(self.path))

    def open(self) -> Overlay:
        """Open it. Raises UsageError if it has changed, FormatError and the errors of its store, with the path."""
        return self._open() if self.is_beside else _OPEN.get(self, self._open)

    def check(self) -> None:
        """Read it, unless that was done before. Raises as `open`."""
        from touchfs.indexing.overlays.overlay import is_read  # most datasets have no overlays

        if not is_read(self.path, self.column, self.digest):
            self.open()

    def _open(self) -> Overlay:
        from touchfs.indexing.overlays.overlay import open_overlay, read_overlay

        try:
            with closing(DATA.open(self.path)) as file:
                file.open()
                if self.is_beside:
                    return read_overlay(file, self.column, self.digest)
                if _digest(self.path, DATA.stat(self.path)) != self.digest:
                    raise UsageError("has changed since it was named: open the dataset again")
                return open_overlay(file, self.column, self.digest)
        except TouchfsError as error:
            raise error.at(self.path) from error


def overlays_hash(overlays: Iterable[NamedOverlay]) -> str:
    """A hash of what overlays have for samples, wherever they are."""
    facts = [(each.extension, each.column, each.digest) for each in overlays]
    return hex_digest(json.dumps([_VERSION, *facts]).encode())


def spell_overlay(name: str | os.PathLike[str]) -> str:
    """An overlay with an absolute path, as `Options` have it. Raises UsageError if it cannot be one."""
    if name == NO_OVERLAY:
        return NO_OVERLAY
    path, column = _split(os.fspath(name))
    absolute = Location.parse(path).absolute.path
    return absolute if column is None else f"{absolute}:{column}"


def overlays_of(shards: Iterable[ListedShard | FoundShard], options: Options, look: Look) -> dict[str, NamedOverlay]:
    """The overlays that shards have beside them, by their paths: the Parquet files that img2dataset writes.

    At a URL they are found if their directory was listed.
    """
    if NO_OVERLAY in options.overlays:
        return {}
    listed = cache(look.names)
    found = {}
    for shard in (shard.path for shard in shards if shard.container.keys_are_paths):
        directory, name = os.path.split(f"{plain_stem(shard)}.parquet")
        names = listed(directory)
        if (name in names) if names is not None else os.path.isabs(shard):
            with suppress(TouchfsError):
                status = look.stat(os.path.join(directory, name))
                version = hex_digest(status.fingerprint.hashed.encode(errors="surrogateescape"))
                if status.type is FileType.FILE:
                    found[shard] = NamedOverlay(os.path.join(directory, name), "key", version, is_beside=True)
    return found


def has_overlays(source: str, options: Options) -> bool:
    """True if overlays are named, or if a shard has one beside it; False if there are no shards. Raises as `find`."""
    if any(name != NO_OVERLAY for name in options.overlays):
        return True
    look = Look()
    try:
        location = Location.parse(source)
        found = find(location, store=look, audio_root=options.limits.audio_root, split=options.split).shards
    except NotFoundError:
        return False
    shards = [shard._replace(location=shard.location.absolute) for shard in found]
    return bool(overlays_of(shards, options, look))


def find_overlays(names: Sequence[str]) -> tuple[NamedOverlay, ...]:
    """The overlays of `Options`, as they are now. Raises UsageError and the errors of their stores, with the path."""
    found = []
    for path, column in map(_split, (name for name in names if name != NO_OVERLAY)):
        try:
            status = DATA.stat(path)
            if status.type is not FileType.FILE:
                raise UsageError("is not a file: name a .parquet or .jsonl")
            found.append(NamedOverlay(path, column, _digest(path, status)))
        except TouchfsError as error:
            raise error.at(path) from error
    for name, count in Counter(each.name for each in found).items():
        if count > 1:
            raise UsageError(f"{count} overlays have the name {name!r}: rename all but one")
    return tuple(found)


def _split(name: str) -> tuple[str, str | None]:
    match = _NAMED.fullmatch(name)
    if match is None:
        problem = "is not an overlay: name a .parquet or .jsonl, or the column of its keys as in FILE:COLUMN"
        raise UsageError(problem, path=name)
    return match[1], match[2]


def _digest(path: str, status: Status) -> str:
    """The hash of a file's bytes, which is read again only if it is another version: a large one takes minutes."""
    version = status.fingerprint
    return _DIGESTS.get((path, version, version.ctime_ns), lambda: _kept_digest(path, status))


def _kept_digest(path: str, status: Status) -> str:
    version = status.fingerprint
    text = "\0".join(("digest of an overlay", path, version.hashed, str(version.ctime_ns)))
    name, scratch = hex_digest(text.encode(errors="surrogateescape")), Scratch.configured()
    with suppress(SourceError):
        if kept := scratch.kept(name):
            return kept.decode()
    found = hashlib.blake2b(digest_size=16)
    with closing(DATA.open(path, version)) as file:
        for offset in range(0, file.size, _PIECE):
            found.update(file.read(offset, min(_PIECE, file.size - offset)))
    with suppress(SourceError):  # it is read again the next time
        scratch.keep(name, found.hexdigest().encode())
    return found.hexdigest()
