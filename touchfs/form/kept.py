"""Results that are computed from stored bytes, kept in the scratch store: all processes of a machine compute one once.

The name of a result is a hash of its inputs: the version of the file, the range in it, and the versions of libraries.

A recording that cannot be decoded, or takes too long, is not tried again by this process for `RETRY_SECONDS`. So those
who wait for it all get the error when the first one does, and not each after a time limit of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Extent
from touchfs.core.names import hex_digest
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.source.counts import count
from touchfs.source.scratch.store import Scratch

RETRY_SECONDS = 5.0
_FAILURES_KEPT = 1000
# By name: the error, and until when it is raised, by time.monotonic.
_failures: BoundedCache[str, tuple[FormatError, float]] = BoundedCache(_FAILURES_KEPT)


def identity_of(extent: Extent) -> str | None:
    """A text that no other bytes have. None if the version of the source is not known: bytes in memory have none, and
    files before their first read.
    """
    identity: str | None = getattr(extent.source, "identity", None)  # only stored files have it
    return None if identity is None else f"{identity}\0{extent.offset}\0{extent.size}"


def find_version(extent: Extent) -> None:
    """Open and verify the file of an extent by reading a byte, if it has any. `identity_of` knows its version then."""
    extent.read(0, 1)


def key_of(extent: Extent) -> Hashable:
    """The key of an extent's results in this process."""
    return identity_of(extent) or (extent.source, extent.offset, extent.size)


def kept_or_made(extent: Extent, what: str, make: Callable[[], Buffer]) -> Buffer:
    """Return what is kept of an extent under the name `what`. If it is missing or damaged, make it and keep it.

    Threads and processes that ask at once wait for one making. If the identity of the bytes is not known, or the store
    is full or cannot be used, it is made and not kept. Raises what `make` raises.
    """
    from touchfs.media.slices.render import renderer

    identity = identity_of(extent)
    if identity is None:
        count("renderings")
        return make()
    name = hex_digest(f"{what}\0{identity}\0{renderer()}".encode(errors="surrogateescape"))
    return Scratch.configured().kept_or_made(name, lambda: _unless_it_failed(name, make))


def _unless_it_failed(name: str, make: Callable[[], Buffer]) -> Buffer:
    error, until = _failures.find(name) or (None, 0.0)
    if error is not None and monotonic() < until:
        raise type(error)(error.message, offset=error.offset)  # another object, as its catcher may add a path
    count("renderings")
    try:
        return make()
    except FormatError as error:
        _failures.keep(name, (type(error)(error.message, offset=error.offset), monotonic() + RETRY_SECONDS))
        raise
