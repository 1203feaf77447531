"""The listing of a published index: what its pack contains. JSON, which may come from anybody."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from touchfs.catalog.catalog import VERSION
from touchfs.core.errors import FormatError
from touchfs.core.names import hex_digest
from touchfs.shard.options import Options
from touchfs.source.fingerprint import Files

LISTING_SUFFIX, PACK_SUFFIX, KEYS_SUFFIX = ".listing.json", ".pack", ".keys"
# Bytes of BLAKE2b.
DIGEST_SIZE = 16
# A listing has about 150 bytes a shard: some 200,000 shards.
LISTING_MAX = 1 << 25
_FORMAT = "touchfs-index-1"
_PACK = re.compile(r"[0-9a-f]{32}" + re.escape(PACK_SUFFIX))


class PackedFile(NamedTuple):
    """An index file in a pack: of the shard at `path` whose files have this `version`, or of the dataset if the path
    is empty. `suffix` is the end of its name. `digest` is that of its bytes. If it has none, the index has no such
    file, because the shard needs none.
    """

    path: str
    suffix: str
    version: str
    offset: int
    size: int
    digest: str


class PackListing(NamedTuple):
    """The name of a pack and its size in bytes, the source that it was made from, and its files in order of offsets."""

    pack: str
    size: int
    source: str
    files: Sequence[PackedFile]


def listing_name(options: Options) -> str:
    return hex_digest(f"{VERSION}\0{options.hashed}".encode(errors="surrogateescape")) + LISTING_SUFFIX


def version_of(files: Files, partition: str, path: str = "") -> str:
    """A hash of the fingerprints of a shard's files and of the values of its directories, and of its path if its
    catalog has a report, which names that.
    """
    listed = [f"{name}\0{fingerprint.hashed}" for name, fingerprint in sorted(files.items())]
    text = "\0".join([path, *listed, *([partition] if partition else [])])
    return hex_digest(text.encode(errors="surrogateescape"))


def relative(path: str, directory: str) -> str:
    """The path of a shard as listings have it: relative to the directory of the data, if it is in there."""
    start = directory.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else path


def build_listing(listing: PackListing) -> bytes:
    return json.dumps({"format": _FORMAT, **listing._asdict()}).encode()


def parse_listing(data: bytes) -> PackListing:
    """A listing from its JSON. Raises FormatError unless each of its files is within the pack, after the one before."""
    try:
        found = json.loads(data)
        if found["format"] != _FORMAT:
            raise FormatError(f"not a listing of {_FORMAT}")
        listing = PackListing(
            found["pack"], found["size"], found["source"], [PackedFile(*each) for each in found["files"]]
        )
        if not _PACK.fullmatch(listing.pack) or type(listing.size) is not int or not isinstance(listing.source, str):
            raise TypeError("not the name, size and source of a pack")
        end = 0
        for file in listing.files:
            if not all(isinstance(text, str) for text in (file.path, file.suffix, file.version, file.digest)):
                raise TypeError("an entry has other types")
            if type(file.offset) is not int or type(file.size) is not int or not end <= file.offset or file.size < 0:
                raise ValueError("its files overlap")
            if bool(file.digest) != (file.size > 0):
                raise ValueError("a file without bytes")
            end = file.offset + file.size
        if end > listing.size:
            raise ValueError("it names bytes beyond its pack")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise FormatError(f"not the listing of an index ({type(error).__name__}: {error})") from error
    return listing
