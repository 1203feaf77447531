"""The usual extension of a file, recognised by its first bytes."""

from __future__ import annotations

from touchfs.core.extent import Buffer

# Number of bytes that `extension` needs.
MAGIC_SIZE = 36

_PREFIXES = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF8", "gif"),
    (b"\x1aE\xdf\xa3", "mkv"),
    (b"fLaC", "flac"),
    (b"ID3", "mp3"),
    (b"\xff\xfb", "mp3"),
    (b"\xff\xfa", "mp3"),
    (b"\xff\xf3", "mp3"),
    (b"\xff\xf2", "mp3"),
    (b"\xff\xe3", "mp3"),
    (b"\xff\xf1", "aac"),
    (b"\xff\xf9", "aac"),
    (b".snd", "au"),
    (b"caff", "caf"),
    (b"#!AMR", "amr"),
    (b"NIST_1A", "sph"),
    (b"\x93NUMPY", "npy"),
    (b"%PDF", "pdf"),
    (b"FLV\x01", "flv"),
    (b"\0\0\x01\xba", "mpg"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "gz"),
)
_RIFF_KINDS = {b"WAVE": "wav", b"AVI ": "avi", b"WEBP": "webp"}
_FORM_KINDS = {b"AIFF": "aiff", b"AIFC": "aiff"}
# The first page of an Ogg file has only the first header of its stream.
_OGG_STREAM, _OPUS = 28, b"OpusHead"
_FTYP_BRANDS = {b"qt  ": "mov", b"M4A ": "m4a", b"avif": "avif", b"heic": "heic"}


def extension(head: Buffer) -> str:
    """Return the extension, without a dot, of a file that begins with `head`; `bin` if it is not recognised."""
    start = bytes(head[:MAGIC_SIZE])
    if start[:4] in (b"RIFF", b"RF64"):
        return _RIFF_KINDS.get(start[8:12], "bin")
    if start[:4] == b"FORM":
        return _FORM_KINDS.get(start[8:12], "bin")
    if start[:4] == b"OggS":
        return "opus" if start[_OGG_STREAM:].startswith(_OPUS) else "ogg"
    if start[4:8] == b"ftyp":
        return _FTYP_BRANDS.get(start[8:12], "mp4")
    return next((name for prefix, name in _PREFIXES if start.startswith(prefix)), "bin")
