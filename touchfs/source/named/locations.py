"""Decide which of the places that data names may be opened. These may:

- a file that the reader opened itself, by the same path
- a path relative to the directory of such a file, which neither `..` nor links leave
- what is below an allowed location: a directory or file of this machine, or an address as `https://host/path`

All else is refused: other absolute paths, `file:`, other hosts, chains of URLs. Options of a store, which may hold
secrets, are given for a location and go nowhere else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from touchfs.core.errors import ArgumentValueError, LocationError, NotFoundError, SourceError
from touchfs.core.location import Location
from touchfs.core.urls import without_secrets
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.named.addresses import Address, is_address, parse_address, parse_location
from touchfs.source.store import StoredFile

StorageOptions = Mapping[str, Mapping[str, Any]]
_SPLIT = re.compile(r"::split_\d+$")
_NO_OPTIONS: Mapping[str, Any] = {}
_ADVICE = "--allow-location (`locations=`) allows it"


class LocalPlace(NamedTuple):
    """A file of this machine: `path`, or if a root is given, the file at that path below the root."""

    root: str | None
    path: str

    def file(self, fingerprint: Fingerprint | None = None) -> StoredFile:
        """Return the file, which is opened at its first read, and must match a fingerprint that is given.

        A path that leads out of the root is a SourceError.
        """
        if self.root is None:
            return DATA.open(self.path, fingerprint)
        return DATA.open_beneath(self.root, self.path, fingerprint)


class RemotePlace(NamedTuple):
    """A file of another store: its URL, the location that it must not leave by redirects, and fsspec's options."""

    url: str
    location: Address
    options: Mapping[str, Any]


class Locations:
    """The places that data may name.

    `source_files` are the files that the reader opened, and `directories` those of the dataset, by default the
    directories of these files. `allowed` are paths and URLs; `storage_options` maps some of them, or of the source
    files' addresses, to options of fsspec. Raises ArgumentValueError.
    """

    def __init__(
        self,
        source_files: Iterable[str] = (),
        allowed: Iterable[str] = (),
        storage_options: StorageOptions | None = None,
        directories: Sequence[str] | None = None,
    ) -> None:
        self.source_files = {_SPLIT.sub("", path): None for path in source_files}
        found = [os.path.dirname(path) for path in self.source_files] if directories is None else directories
        self._directories = list(dict.fromkeys(found))
        self._local: list[str] = []
        self._remote: list[Address] = []
        for location in allowed:
            if not location:
                raise ArgumentValueError("an allowed location is a path or a URL, not the empty text")
            if is_address(location):
                self._remote.append(parse_location(location))
            else:
                self._local.append(os.path.abspath(location))
        self._options = _parse_options(storage_options or {})

    def find(self, path: str) -> LocalPlace | RemotePlace:
        """Return the place that a path in data means. Raises LocationError if it may not be opened."""
        if path in self.source_files:
            return self._remote_place(path, None) if is_address(path) else LocalPlace(None, path)
        if is_address(path):
            return self._remote_place(path, self._remote)
        if "\0" in path:
            raise LocationError("has a zero byte", path=repr(path))
        if "::" in path:
            raise LocationError("is a chain of URLs, which data may not name", path=without_secrets(path))
        if os.path.isabs(path):
            return self._absolute(path)
        return self._relative(path)

    def _absolute(self, path: str) -> LocalPlace:
        for location in self._local:
            if path == location:
                return LocalPlace(None, path)
            if path.startswith(location.rstrip("/") + "/"):
                return LocalPlace(location, path[len(location) :].lstrip("/"))
        raise LocationError(f"is an absolute path, and not below an allowed location: {_ADVICE}", path=path)

    def _relative(self, path: str) -> LocalPlace | RemotePlace:
        places = [self._below(directory, path) for directory in self._directories]
        if not places:
            raise LocationError("is a relative path, and the directory of the dataset is not known", path=path)
        return next((place for place in places if len(places) == 1 or _exists(place)), places[0])

    def _below(self, directory: str, path: str) -> LocalPlace | RemotePlace:
        if is_address(directory):
            return self._remote_place(Location.of(directory).beneath(path), [parse_address(directory)])
        return LocalPlace(directory or ".", path)

    def _remote_place(self, url: str, locations: Iterable[Address] | None) -> RemotePlace:
        address = parse_address(url)
        allowed = [address.origin] if locations is None else [place for place in locations if address.is_below(place)]
        if not allowed:
            raise LocationError(f"is not below an allowed location: {_ADVICE}", path=url)
        given = [place for place in self._options if address.is_below(place)]
        options = self._options[max(given, key=lambda place: len(place.parts))] if given else _NO_OPTIONS
        return RemotePlace(url, allowed[0], options)


def _exists(place: LocalPlace | RemotePlace) -> bool:
    if isinstance(place, RemotePlace):
        return False
    file = place.file()
    try:
        file.open()
    except (NotFoundError, SourceError):
        return False
    file.close()
    return True


def _parse_options(options: StorageOptions) -> dict[Address, Mapping[str, Any]]:
    """Options by location. The options of one store alone, as fsspec takes them, name no location, and are refused."""
    for location, values in options.items():
        if not (is_address(location) and isinstance(values, Mapping)):
            raise ArgumentValueError(
                f"storage options are given for locations, as {{'s3://bucket/': {{…}}}}; {location!r} is not a location"
            )
    return {parse_location(location): values for location, values in options.items()}
