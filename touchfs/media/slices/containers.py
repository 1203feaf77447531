"""Name the container of a recording by its first bytes. Only those of this list are ever opened.

libav guesses among 350 formats, some of which are lists of other files (HLS, DASH, concat, SDP). Here a format has its
magic, and the demuxer that reads it.
"""

from __future__ import annotations

from touchfs.errors import FormatError
from touchfs.extent import Reads
from touchfs.media.coding import w64
from touchfs.media.coding.mpeg import is_frame_header

# libav's demuxer of each container that is not read by touchfs itself
DEMUXERS = {
    "aac": "aac",
    "aiff": "aiff",
    "amr": "amr",
    "avi": "avi",
    "matroska": "matroska",
    "mov": "mov",
    "mp3": "mp3",
    "wav": "wav",
}

_HEAD_SIZE = 64
_QUICKTIME_ATOMS = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")
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
        raise FormatError("it has no sound: " + ("it ends after its tags" if size else "it is empty"), offset=offset)
    return _by_magic(head), offset


def _by_magic(head: bytes) -> str:
    if head[:4] in (b"RIFF", b"RF64", b"BW64") and head[8:12] == b"WAVE":
        return "wav"
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
    raise FormatError(f"not a recording that can be sliced: it begins with {head[:12]!r}", offset=0)
