"""Name the container of a recording by its first bytes. Only those of this list are ever opened.

libav guesses among 350 formats, some of which are lists of other files (HLS, DASH, concat, SDP). Here a format has its
magic, and the demuxer that reads it.
"""

from __future__ import annotations

import re

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads
from touchfs.media.coding import w64
from touchfs.media.coding.mpeg import is_frame_header

# libav's demuxers of each container that touchfs does not read itself: it is for libav to choose one of several
DEMUXERS = {
    "aac": "aac",
    "ac3": "ac3",
    "aiff": "aiff",
    "amr": "amr",
    "asf": "asf",
    "au": "au",
    "avi": "avi",
    "caf": "caf",
    "matroska": "matroska",
    "mov": "mov",
    "mp3": "mp3",
    "mpeg": "mpeg",
    "mpegts": "mpegts",
    "mpeg audio": "mp3,aac",
    "rifx": "wav",
    "sphere": "nistsphere",
    "wav": "wav",
}

# A recording that is decoded from its start has a second more for so many bytes: those of 8 kbit/s, 500 times as fast.
FROM_START_BYTES_A_SECOND = 5e5

_HEAD_SIZE = 64
# Where a recording without a magic may have its first frame, as for libav
_JUNK_MAX = 1 << 16
# A shorter text is not looked through for one.
_LOOKED_THROUGH_MIN = 1 << 12
_MPEG_SYNC = re.compile(rb"\xff[\xe0-\xff]")
_TS_PACKET = 188
_NONE = "not a recording that can be sliced"
_QUICKTIME_ATOMS = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")
_MAGICS = {
    b"NIST_1A\n": "sphere",
    b".snd": "au",
    b"caff": "caf",
    b"\x0b\x77": "ac3",
    b"\0\0\1\xba": "mpeg",
    b"\x30\x26\xb2\x75\x8e\x66\xcf\x11": "asf",
}
_ID3_MAX = 8  # tags may follow each other


def detect(size: int) -> Reads[tuple[str, int]]:
    """Return the container of a file of `size` bytes, and where it begins: after tags. Raises FormatError."""
    offset = 0
    for _ in range(_ID3_MAX):
        head = bytes((yield offset, min(_HEAD_SIZE, size - offset)))
        if head[:3] != b"ID3" or len(head) < 10:
            break
        length = 0
        for byte in head[6:10]:
            length = length << 7 | byte & 0x7F
        has_footer = head[5] & 0x10
        offset = min(offset + 10 + length + (10 if has_footer else 0), size)
    if not head:
        why = "it has no sound: it ends after its tags" if offset else f"{_NONE}: it is empty"
        raise FormatError(why, offset=offset)
    container = _by_magic(head)
    if container is None and not (size < _LOOKED_THROUGH_MIN and _is_text(head)):
        container = _by_frames(bytes((yield offset, min(_JUNK_MAX, size - offset))))
    if container is None:
        raise FormatError(f"{_NONE}: it begins with {head[:12]!r}", offset=0)
    return container, offset


def _is_text(head: bytes) -> bool:
    """True for no bytes, and for lists of files, source code and the like. Rips of radios begin with text, too."""
    return head.isascii() and b"\0" not in head


def _by_frames(data: bytes) -> str | None:
    if data[::_TS_PACKET][:3] == b"GGG":
        return "mpegts"
    has_frame = any(is_frame_header(data[sync.start() :][:4]) for sync in _MPEG_SYNC.finditer(data))
    return "mpeg audio" if has_frame else None


def _by_magic(head: bytes) -> str | None:
    if head[:4] in (b"RIFF", b"RF64", b"BW64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"RIFX" and head[8:12] == b"WAVE":
        return "rifx"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    if head.startswith(w64.MAGIC):
        return "w64"
    if head.startswith(b"fLaC"):
        return "flac"
    if head.startswith(b"OggS"):
        return "ogg"
    if head.startswith((b"#!AMR\n", b"#!AMR-WB\n")):
        return "amr"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "matroska"
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return "aiff"
    if head[4:8] in _QUICKTIME_ATOMS:
        return "mov"
    if len(head) > 3 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        if head[1] & 0xF6 == 0xF0:
            return "aac"
        if is_frame_header(head):
            return "mp3"
    return next((container for magic, container in _MAGICS.items() if head.startswith(magic)), None)
