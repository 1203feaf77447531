"""CRC32C (RFC 3720, appendix B.4), which processors compute: it finds every error of up to 32 successive bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from touchfs.core.errors import MissingExtraError
from touchfs.core.extent import Buffer, Content
from touchfs.core.extras import install_hint

# What is read at once.
PIECE = 1 << 20


@cache
def extender() -> Callable[[int, Buffer], int]:
    """The function that continues a checksum with more bytes; the checksum of none is 0. Raises MissingExtraError."""
    try:
        from google_crc32c import extend
    except ImportError as error:
        raise MissingExtraError(f"checksums need the checksum extra: `{install_hint('checksum')}`") from error
    return lambda checksum, data: int(extend(checksum, bytes(data)))


def checksum_of(content: Content, read: Callable[[int], None] = lambda count: None) -> int:
    """The checksum of a content. `read` is called with the number of bytes of each piece. Raises as its `read`."""
    extend, checksum = extender(), 0
    for offset in range(0, content.size, PIECE):
        piece = content.read(offset, PIECE)
        checksum = extend(checksum, piece)
        read(len(piece))
    return checksum
