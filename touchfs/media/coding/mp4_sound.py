"""Tell from the headers of an MP4 or QuickTime file that it has no sound. ISO/IEC 14496-12, 8.4.3."""

from __future__ import annotations

from touchfs.core.extent import Reads
from touchfs.media.coding.mp4_boxes import BoxPlace, places

EXTENSIONS = frozenset({"mp4", "mov"})
# Handlers of tracks without sound: pictures, texts, subtitles, chapters, time codes, hints and metadata.
_WITHOUT_SOUND = frozenset({b"vide", b"text", b"subt", b"sbtl", b"clcp", b"tmcd", b"hint", b"meta"})
# The handler in the contents of the box `hdlr`, after a version, flags and a component type.
_HANDLER = slice(8, 12)


def is_silent(size: int) -> Reads[bool]:
    """Read the headers of a file of `size` bytes. True if it has tracks, and none of them can be sound.

    False for a file that is damaged, or is something else.
    """
    handlers = []
    for movie in _called(b"moov", (yield from places(0, size, last=b"moov"))):
        for track in _called(b"trak", (yield from places(movie.start, movie.end))):
            handlers.append((yield from _handler(track)))
    return bool(handlers) and _WITHOUT_SOUND.issuperset(handlers)


def _handler(track: BoxPlace) -> Reads[bytes]:
    """The handler of a track; b"" if there is none."""
    for media in _called(b"mdia", (yield from places(track.start, track.end, last=b"mdia"))):
        for box in _called(b"hdlr", (yield from places(media.start, media.end, last=b"hdlr"))):
            if box.end - box.start >= _HANDLER.stop:
                return bytes((yield box.start, _HANDLER.stop)[_HANDLER])
    return b""


def _called(name: bytes, found: list[BoxPlace]) -> list[BoxPlace]:
    return [place for place in found if place.name == name]
