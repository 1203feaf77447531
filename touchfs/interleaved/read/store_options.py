"""Options of fsspec for the remote files of a reader. They may hold secrets, so each store gets only its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from touchfs.core.errors import ArgumentTypeError, ArgumentValueError
from touchfs.core.urls import without_secrets
from touchfs.source.named.addresses import Address, parse_location

_LOCAL = ("file://", "local://")


class StoreOptions:
    """Options for the files at or below some paths.

    `given` maps locations, such as `s3://bucket`, to options of fsspec; or it has the options themselves, if all remote
    paths are of one store. Raises ArgumentValueError if they are of several, or for a path that is a chain of URLs.
    """

    def __init__(self, paths: Iterable[str], given: Mapping[str, Any]) -> None:
        remote = [path for path in paths if is_remote(path)]
        for path in remote:
            if "::" in path:
                raise ArgumentValueError("is a chain of URLs, which is not read", path=without_secrets(path))
        stores = {parse_location(path).origin for path in remote}
        if given and all(is_remote(name) for name in given):
            self._by_location = {parse_location(name): options for name, options in given.items()}
        elif given and len(stores) > 1:
            example = "{'s3://bucket': {…}, …}"
            raise ArgumentValueError(f"files of several stores need storage_options for each, as {example}")
        else:
            self._by_location = dict.fromkeys(stores, given)
        for options in self._by_location.values():
            if not isinstance(options, Mapping):
                raise ArgumentTypeError(f"the storage options of a store are a mapping, not {type(options).__name__}")

    def of(self, path: str) -> Mapping[str, Any]:
        """Return the options for a file: those of the innermost location that it is in."""
        if not is_remote(path):
            return {}
        address = parse_location(path)
        found = [location for location in self._by_location if address.is_below(location)]
        return self._by_location[max(found, key=_depth)] if found else {}


def is_remote(path: str) -> bool:
    """True for the URL of a file that is not of this machine."""
    return "://" in path and not path.startswith(_LOCAL)


def _depth(location: Address) -> int:
    return len(location.parts)
