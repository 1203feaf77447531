"""Read pieces of files: each once, with few calls, and none of more bytes than a limit.

Files of this machine, and those that the reader opened itself, are read piece by piece. Ranges of files of other stores
are asked for together.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator

from touchfs.core.errors import LocationError
from touchfs.core.urls import without_secrets
from touchfs.interleaved.fetch.local import fetch_local
from touchfs.interleaved.fetch.pieces import FetchedPiece, ItemPiece, failed_pieces
from touchfs.interleaved.fetch.remote import fetch_remote
from touchfs.source.data import DATA
from touchfs.source.named.locations import LocalPlace, Locations, RemotePlace
from touchfs.source.remote.storage_options import give_options

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
            yield from failed_pieces(wanted, f"path {without_secrets(path)!r} {error.message}")
            continue
        if isinstance(place, LocalPlace):
            yield from fetch_local(place.file(), wanted, limit)
        elif path in locations.source_files:  # it is being read, so blocks of it may be here
            give_options(place.url, place.options)
            yield from fetch_local(DATA.open(place.url), wanted, limit)
        else:
            remote.append((place, wanted))
    if remote:
        yield from fetch_remote(remote, limit)
