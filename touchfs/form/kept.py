"""Results that are computed from stored bytes, kept in the scratch store: all processes of a machine compute one once.

The name of a result is a hash of its inputs: the version of the file, the range in it, and the versions of libraries.
"""

from __future__ import annotations

from collections.abc import Callable

from touchfs.extent import Extent
from touchfs.names import hex_digest
from touchfs.source.scratch import Scratch


def identity_of(extent: Extent) -> str | None:
    """A text that no other bytes have. None if the version of the source is not known: bytes in memory have none, and
    files before their first read.
    """
    identity: str | None = getattr(extent.source, "identity", None)  # only stored files have it
    return None if identity is None else f"{identity}\0{extent.offset}\0{extent.size}"


def kept_or_made(extent: Extent, what: str, make: Callable[[], bytes]) -> bytes:
    """Return what is kept of an extent under the name `what`. If it is missing or damaged, make it and keep it.

    Threads and processes that ask at once wait for one making. If the identity of the bytes is not known, or the store
    is full or cannot be used, it is made and not kept. Raises what `make` raises.
    """
    from touchfs.media.slices.render import renderer

    identity = identity_of(extent)
    if identity is None:
        return make()
    name = hex_digest(f"{what}\0{identity}\0{renderer()}".encode(errors="surrogateescape"))
    return Scratch.configured().kept_or_made(name, make)
