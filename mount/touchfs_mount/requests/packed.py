"""Arguments and results of handlers as plain data for another process, because pyfuse3's objects cannot be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyfuse3

# `unpack` makes new objects of these classes.
_CONSTRUCTIBLE = {kind.__name__: kind for kind in (pyfuse3.EntryAttributes, pyfuse3.FileInfo, pyfuse3.StatvfsData)}
# Only pyfuse3 can make these. Handlers only read their attributes, so `unpack` makes namespaces.
_READ_ONLY = (pyfuse3.RequestContext, pyfuse3.SetattrFields)


@dataclass(frozen=True, slots=True)
class PackedObject:
    """An object of pyfuse3: the name of its class, and its attributes."""

    kind: str
    attributes: dict[str, Any]


def pack(value: Any) -> Any:
    """Plain data for an argument or result of a handler."""
    if isinstance(value, (*_CONSTRUCTIBLE.values(), *_READ_ONLY)):
        names = [name for name in dir(value) if not name.startswith("_")]
        return PackedObject(type(value).__name__, {name: getattr(value, name) for name in names})
    if isinstance(value, pyfuse3.ReaddirToken):
        return None  # it is opaque, and `_ListingReply` does not need it
    return bytes(value) if isinstance(value, memoryview) else value


def unpack(value: Any) -> Any:
    """The inverse of `pack`."""
    if not isinstance(value, PackedObject):
        return value
    if value.kind not in _CONSTRUCTIBLE:
        return SimpleNamespace(**value.attributes)
    unpacked = _CONSTRUCTIBLE[value.kind]()
    for name, attribute in value.attributes.items():
        setattr(unpacked, name, attribute)
    return unpacked
