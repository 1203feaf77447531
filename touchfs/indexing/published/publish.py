"""Write the index of a dataset to a prefix, for others."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from touchfs.catalog.keys import Keys
from touchfs.core.errors import (
    FormatError,
    NotFoundError,
    SourceError,
    SourceTimeoutError,
    TouchfsError,
    UsageError,
    map_os_errors,
)
from touchfs.core.location import Location
from touchfs.core.urls import shown
from touchfs.dataset import Dataset
from touchfs.dataset.shard import Shard
from touchfs.indexing.interleaved import items_suffix, may_have_items
from touchfs.indexing.preparing import CATALOG_SUFFIX, is_notice
from touchfs.indexing.published.listing import (
    DIGEST_SIZE,
    KEYS_SUFFIX,
    LISTING_MAX,
    PACK_SUFFIX,
    PackedFile,
    PackListing,
    build_listing,
    listing_name,
    parse_listing,
    relative,
    version_of,
)
from touchfs.posix.trust import open_trusted
from touchfs.registry.directory.members import directory_of
from touchfs.shard.options import Options
from touchfs.source.data import DATA
from touchfs.source.upload import check_writable, remove, upload

_PIECE = 1 << 20

log = logging.getLogger(__name__)


def publish_index(dataset: Dataset, options: Options, prefix: str) -> int:
    """Write the index of a dataset to the directory or URL `prefix`. Returns the number of shards in it.

    What cannot be served now is left out. A pack that the listing does not name any more is removed. Raises UsageError
    if nothing can be written to that store, and SourceError.
    """
    check_writable(prefix)
    source = dataset.source
    directory = directory_of(Location.of(source))
    listing_path = os.path.join(prefix, listing_name(options))
    before = _pack_before(listing_path)
    with map_os_errors(tempfile.gettempdir()), tempfile.TemporaryDirectory() as scratch:
        pack_path, whole, files, offset = os.path.join(scratch, "pack"), hashlib.blake2b(digest_size=DIGEST_SIZE), [], 0
        with open(pack_path, "xb") as pack:
            for shard, path, suffix in _index_files(dataset, options):
                name = "" if shard is None else relative(shard.path, directory)
                version = "" if shard is None else _version(shard)
                size, digest = _append(path, pack, whole, source if shard is None else shard.path) if path else (0, "")
                files.append(PackedFile(name, suffix, version, offset, size, digest))
                offset += size
        listing = PackListing(whole.hexdigest() + PACK_SUFFIX, offset, shown(source), files)
        listed = build_listing(listing)
        if len(listed) > LISTING_MAX:
            raise UsageError(f"too many shards for one index: its listing has {len(listed):,} bytes", path=source)
        with open(os.path.join(scratch, "listing"), "xb") as file:
            file.write(listed)
        upload(pack_path, os.path.join(prefix, listing.pack))
        try:
            upload(file.name, listing_path)
        except SourceError as error:
            # After a time-out the listing may arrive yet. Then it must not name a pack that is not there.
            if listing.pack != before and not isinstance(error, SourceTimeoutError):
                _remove_pack(prefix, listing.pack)
            raise type(error)(f"{error.message}; the index there is still the one before", path=error.path) from error
    if before not in ("", listing.pack):
        _remove_pack(prefix, before)
    return len({file.path for file in files if file.path})


def _index_files(dataset: Dataset, options: Options) -> Iterator[tuple[Shard | None, str, str]]:
    """The files of a dataset's index with their shards and suffixes: the path of each, or "" if a shard needs none."""
    items = {} if dataset.interleaved is None else {shard.path: shard for shard in dataset.interleaved.shards}
    suffix = items_suffix(options)
    for shard in {shard.path: shard for shard in dataset.shards}.values():
        if not shard.files or is_notice(shard) or shard.path in dataset.unseen:
            continue
        yield shard, shard.base_catalog, CATALOG_SUFFIX
        if may_have_items(shard):
            yield shard, items[shard.path].catalog if shard.path in items else "", suffix
    if isinstance(dataset.keys, Keys):
        yield None, dataset.keys.path, KEYS_SUFFIX


def _version(shard: Shard) -> str:
    return version_of(shard.files, shard.partition, shard.path if shard.reports else "")


def _append(path: str, pack: BinaryIO, whole: hashlib.blake2b, data: str) -> tuple[int, str]:
    """Append an index file of this data to a pack. Returns its size and digest."""
    digest, size = hashlib.blake2b(digest_size=DIGEST_SIZE), 0
    with map_os_errors(path), open(open_trusted(path, data), "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            whole.update(piece)
            size += pack.write(piece)
    return size, digest.hexdigest()


def _pack_before(listing: str) -> str:
    """The name of the pack that is listed now; "" if there is no listing, or none that can be read."""
    try:
        file = DATA.open(listing)
        if file.size > LISTING_MAX:
            raise FormatError("is too large", path=listing)
        return parse_listing(file.read(0, file.size)).pack
    except NotFoundError:
        return ""
    except TouchfsError as error:
        log.warning("%s: cannot be read, so its pack stays there: %s", shown(listing), error.message)
        return ""


def _remove_pack(prefix: str, pack: str) -> None:
    """Remove a pack that no listing names. One that stays takes room, and does nothing else."""
    try:
        remove(os.path.join(prefix, pack))
    except SourceError as error:
        log.warning("%s: an old pack stays there: %s", shown(prefix), error)
