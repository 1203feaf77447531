"""Parquet's FILE group: a reference to a file or to a range of it, or the bytes themselves.

    uri only               the whole file
    uri and size           its first `size` bytes
    uri, offset and size   a range of it
    inline                 these bytes, whatever else is given

An offset without a size is invalid, and so is a group with neither uri nor inline bytes.

Source: LogicalTypes.md of parquet-format, at commit 24102ed and after its pull request 603.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer

_DIGESTS = {"MD5": "md5", "SHA-256": "sha256"}
# The checksum of CRC32C needs a library that we do not have; an ETag is whatever a server says.
_NOT_CHECKED = frozenset(("CRC32C", "ETAG"))


class FileReference(NamedTuple):
    """The fields of a FILE group. All are optional."""

    uri: str | None = None
    offset: int | None = None
    size: int | None = None
    content_type: str | None = None
    checksum: str | None = None
    inline: bytes | None = None

    def range(self) -> tuple[int, int | None]:
        """Return `(offset, size)` of the bytes in the file; size None means up to its end. Raises FormatError."""
        if self.uri is None:
            raise FormatError("a FILE group has neither a uri nor inline bytes")
        if self.offset is not None and self.size is None:
            raise FormatError("a FILE group has an offset and no size")
        if min(self.offset or 0, self.size or 0) < 0:
            raise FormatError(f"a FILE group has a negative offset or size: {self.offset}, {self.size}")
        return self.offset or 0, self.size


def verify_checksum(checksum: str, data: Buffer) -> bool:
    """Compare the bytes with their checksum, `<algorithm>:<digest>`. Return False for ETAG and CRC32C, which no part of
    touchfs can compute.

    Raises FormatError if the bytes have another checksum, or the text is not a checksum that the format knows.
    """
    algorithm, colon, expected = checksum.partition(":")
    algorithm = algorithm.upper()
    if not colon or not expected:
        raise FormatError(f"not a checksum: {checksum[:80]!r}")
    if algorithm in _NOT_CHECKED:
        return False
    if algorithm == "CRC32":
        found = f"{zlib.crc32(data):08x}"
    elif algorithm in _DIGESTS:
        found = hashlib.new(_DIGESTS[algorithm], data, usedforsecurity=False).hexdigest()
    else:
        raise FormatError(f"not a checksum that FILE groups have: {checksum[:80]!r}")
    if found != expected.lower():
        raise FormatError(f"the bytes have the {algorithm} checksum {found}, not {expected.lower()[:80]}")
    return True
