"""Read pieces of files: each once, with few calls, and none of more bytes than a limit.

Files of this machine are read by ranges of ours, piece by piece. Ranges of other stores are read together, by one call
for each file system.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator

from touchfs.errors import LocationError, MissingExtraError
from touchfs.items.fetch.local import fetch_local
from touchfs.items.located.locations import LocalPlace, Locations, RemotePlace
from touchfs.items.pieces import FetchedPiece, ItemPiece, failed_pieces

log = logging.getLogger(__name__)


def fetch_pieces(pieces: Iterable[ItemPiece], locations: Locations, limit: int) -> Iterator[FetchedPiece]:
    """Yield the result of each piece, in any order. A piece of over `limit` bytes is an error."""
    by_path: defaultdict[str, list[ItemPiece]] = defaultdict(list)
    for piece in dict.fromkeys(pieces):
        by_path[piece.path].append(piece)
    remote: list[tuple[RemotePlace, list[ItemPiece]]] = []
    for path, wanted in by_path.items():
        try:
            place = locations.find(path)
        except LocationError as error:
            log.warning("not opened: %s", error)
            yield from failed_pieces(wanted, f"path {path!r} {error.message}")
            continue
        if isinstance(place, LocalPlace):
            yield from fetch_local(place, wanted, limit)
        else:
            remote.append((place, wanted))
    if remote:
        # fsspec is imported only where something is elsewhere.
        try:
            from touchfs.items.fetch.remote import fetch_remote
        except ImportError as error:
            raise MissingExtraError("other stores need fsspec: pip install 'touchfs[interleaved]'") from error
        yield from fetch_remote(remote, limit)
