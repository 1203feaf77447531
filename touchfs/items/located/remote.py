"""Files of other stores, read by fsspec: ranges with few calls, whole files, and files that are read here and there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

import fsspec
import fsspec.core

from touchfs.errors import SourceError
from touchfs.items.located.addresses import HTTP, Address
from touchfs.items.located.http_client import NoRangesError, guarded_options
from touchfs.items.located.locations import RemotePlace
from touchfs.limits import too_large

_BLOCK = 1 << 20


class RemoteRange(NamedTuple):
    """A range of a file, by its path in the file system."""

    path: str
    offset: int
    size: int


class RemoteFiles:
    """The file systems of one batch. A client of HTTP belongs to one location, and all else is shared by fsspec."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._clients: dict[tuple[Address, int], Any] = {}

    def resolve(self, place: RemotePlace) -> tuple[Any, str]:
        """Return the file system of a place, and the path in it. Raises what fsspec raises."""
        if place.location.scheme not in HTTP:
            system, path = fsspec.core.url_to_fs(place.url, **place.options)
            return system, path
        # The places of one `Locations` share its dictionaries of options, so these are known by their identity.
        key = place.location, id(place.options)
        if key not in self._clients:
            options = guarded_options(place.options, place.location, self._limit)
            self._clients[key] = fsspec.filesystem(place.location.scheme, **options)
        return self._clients[key], place.url

    def read_ranges(self, system: Any, ranges: Sequence[RemoteRange]) -> list[bytes | Exception]:
        """Return the bytes of ranges, or an exception for each that cannot be read, by one call of `cat_ranges`.

        Raises what `cat_ranges` raises.
        """
        paths = [each.path for each in ranges]
        starts = [each.offset for each in ranges]
        ends = [each.offset + each.size for each in ranges]
        found: list[bytes | Exception] = system.cat_ranges(paths, starts, ends, on_error="return")
        at, whole = "", b""
        for i, each in enumerate(ranges):
            if isinstance(found[i], NoRangesError):
                try:
                    if each.path != at:
                        at, whole = each.path, self.read_whole(system, each.path)
                    found[i] = whole[each.offset : each.offset + each.size]
                except (OSError, ValueError, SourceError) as error:
                    found[i] = error
        return [each if isinstance(each, Exception) else bytes(each) for each in found]

    def read_whole(self, system: Any, path: str) -> bytes:
        """Return all bytes of a file. Raises SourceError if it is over the limit, and what fsspec raises."""
        with self.stream(system, path) as stream:
            blocks, size = [], 0
            while block := stream.read(min(_BLOCK, self._limit + 1 - size)):
                blocks.append(block)
                size += len(block)
                if size > self._limit:
                    raise SourceError(too_large(self._limit), path=path)
        return b"".join(blocks)

    def stream(self, system: Any, path: str) -> BinaryIO:
        """Return the bytes of a file from its start on; a read may return fewer bytes than it is asked for."""
        # A block of 0 bytes has fsspec's HTTP files ask once, for the file instead of ranges of it.
        options = {"block_size": 0} if is_http(system) else {}
        stream: BinaryIO = system.open(path, "rb", **options)
        return stream


class StreamSource:
    """A file of fsspec's as a source: reads are exact."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.size: int = stream.size

    def read(self, offset: int, length: int) -> bytes:
        """See `Source.read`."""
        self._stream.seek(offset)
        data: bytes = self._stream.read(length)
        if len(data) != length:
            raise SourceError("the file ends here, before its size", offset=offset + len(data))
        return data

    def read_nowait(self, offset: int, length: int) -> None:
        """See `Source.read_nowait`: it always waits."""


def is_http(system: Any) -> bool:
    """True for a file system of fsspec whose files are those of a web server."""
    protocol = system.protocol
    return not HTTP.isdisjoint((protocol,) if isinstance(protocol, str) else protocol)
