"""Images that rows name: which places may be opened, and whether what they name is there, as far as that is cheap."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from touchfs.core.errors import FormatError, NotFoundError, SourceError
from touchfs.interleaved.fetch.pieces import PieceAccess, find_piece
from touchfs.interleaved.forms.located import LOCATED, is_plain, located_detail
from touchfs.interleaved.layout.source_ref import parse_source_ref
from touchfs.limits import Limits
from touchfs.shard.sample import Field
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.named.locations import LocalPlace, Locations
from touchfs.view.interleaved import ViewItem

# A file that many rows name is looked at once.
_FILES_KEPT = 4096


class LocatedImages:
    """Makes items of the locators of the shard at `path`. `source` is the name of its file."""

    def __init__(self, path: str, source: str, limits: Limits) -> None:
        self._source = source
        self._locations = Locations((path,), limits.locations)
        self._fingerprint = lru_cache(_FILES_KEPT)(self._find_fingerprint)

    def item(self, position: int, name: str, extension: str, ref: str | None, problem: str | None) -> ViewItem:
        """The item that a locator means. `problem` is that of an earlier attempt to read it, if there was one."""
        try:
            detail = self._detail(ref or "")
        except (FormatError, NotFoundError, SourceError) as error:
            return ViewItem.failed(position, name, "", extension, str(error))
        if detail is None:
            return ViewItem.failed(position, name, "", extension, problem or "missing path")
        return ViewItem(position, Field(name, self._source, 0, 0, LOCATED, extension, detail=detail))

    def _detail(self, text: str) -> bytes | None:
        """The detail of an image: its file, and its size if the locator says it; None without a path.

        Raises FormatError, SourceError or NotFoundError if it certainly cannot be read.
        """
        ref = parse_source_ref(text)
        piece = find_piece(ref)
        if piece is None:
            return None
        place, size, file = self._locations.find(piece.path), piece.size, None
        if isinstance(place, LocalPlace):
            file = self._fingerprint(place)
            if piece.access is PieceAccess.RANGE and piece.offset + (piece.size or 0) > file.size:
                raise FormatError(f"a range past the end of its {file.size:,} bytes", path=piece.path)
            size = file.size if piece.access is PieceAccess.DIRECT else piece.size
        return located_detail(text, size if is_plain(ref, piece) else None, file)

    @staticmethod
    def _find_fingerprint(place: LocalPlace) -> Fingerprint:
        file = place.file()
        try:
            file.open()
            return cast("Fingerprint", file.fingerprint)  # that of a file that was opened
        finally:
            file.close()
