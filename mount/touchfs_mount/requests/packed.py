"""Arguments and answers of handlers as plain data, to be sent to another process: pyfuse3's objects cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyfuse3

_MADE_ANEW = {kind.__name__: kind for kind in (pyfuse3.EntryAttributes, pyfuse3.FileInfo, pyfuse3.StatvfsData)}
# They are made by pyfuse3 only. Handlers look at their attributes.
_LOOKED_AT = (pyfuse3.RequestContext, pyfuse3.SetattrFields)


@dataclass(frozen=True, slots=True)
class PackedObject:
    """An object of pyfuse3's: the name of its class, and its attributes."""

    kind: str
    attributes: dict[str, Any]


def pack(value: Any) -> Any:
    if isinstance(value, (*_MADE_ANEW.values(), *_LOOKED_AT)):
        names = [name for name in dir(value) if not name.startswith("_")]
        return PackedObject(type(value).__name__, {name: getattr(value, name) for name in names})
    if isinstance(value, pyfuse3.ReaddirToken):
        return None  # only pyfuse3 knows what it is
    return bytes(value) if isinstance(value, memoryview) else value


def unpack(value: Any) -> Any:
    if not isinstance(value, PackedObject):
        return value
    if value.kind not in _MADE_ANEW:
        return SimpleNamespace(**value.attributes)
    made = _MADE_ANEW[value.kind]()
    for name, attribute in value.attributes.items():
        setattr(made, name, attribute)
    return made
