"""The content of a compressed file of a sample: that of `a.json.gz` is JSON, as if it were called `a.json`.

It is decompressed in memory, up to a limit of ours: what the data says of its own size counts for nothing.
"""

from __future__ import annotations

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content
from touchfs.limits import too_long
from touchfs.source.decompressed import codec_of, decompress

_SUFFIXES = (".gz", ".zst", ".xz", ".bz2")
# Bytes of input at a time, which become 8 MiB at most.
_STEP_SIZE = 1 << 8


def plain_extension(extension: str) -> str:
    """The extension without that of a compression: `json` of `json.gz`."""
    plain, dot, last = extension.rpartition(".")
    return plain if plain and dot + last.lower() in _SUFFIXES else extension


def with_compressed(extension: str) -> tuple[str, ...]:
    """An extension, and those that compressed files with the same content have."""
    return (extension, *(extension + suffix for suffix in _SUFFIXES))


def read_plain(extension: str, content: Content, limit: int) -> bytes:
    """The bytes of the file with an extension, decompressed if that says so.

    Raises FormatError if they cannot be decompressed, or are over `limit`, and MissingExtraError.
    """
    name = f"its .{extension}"
    if content.size > limit:
        raise FormatError(too_long(name, limit))
    if plain_extension(extension) == extension:
        return bytes(content.read(0, content.size))
    stored, data = bytes(content.read(0, content.size)), bytearray()
    steps = (stored[start : start + _STEP_SIZE] for start in range(0, len(stored), _STEP_SIZE))
    try:
        for piece in decompress(codec_of(extension), steps, name):
            data += piece
            if len(data) > limit:
                break
    except FormatError as error:
        raise FormatError(f"{name}: {error.message}") from error
    if len(data) > limit:
        raise FormatError(too_long(f"{name}, decompressed,", limit))
    return bytes(data)
