"""The headers of a tar: blocks of 512 bytes with text fields, and PAX records for values that do not fit in them.

A block has a name, numbers in octal (or, marked by the highest bit, in base 256) and the sum of its own bytes. PAX puts
records "LENGTH KEYWORD=VALUE\\n" before it, as the data of a member of type x; they replace fields of the block. The
headers built here are those of Python's tarfile in PAX format, byte for byte, as Lhotse and webdataset use it.

Source: pax in POSIX.1-2017, tar(5) of libarchive, "Basic Tar Format" in GNU tar's manual, Lib/tarfile.py.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Container
from functools import lru_cache
from zlib import adler32

from touchfs.core.errors import FormatError

BLOCK = 512
SIZE_LIMIT = 2**63
_OCTAL_LIMIT = 8**11
_SHORT_NAME = 100
_ARCHIVE_UNIT = 20 * BLOCK  # tar's blocking factor: the unit in which it writes to a tape

# name, mode, user, group, size, mtime, checksum, type, link, magic and version, names of user and group, device, prefix
_LAYOUT = struct.Struct("<100s8s8s8s12s12s8sc100s8s32s32s16s155s12x")
# The fields that are read: name, size, mtime, checksum, type, link, magic, prefix
_READ = struct.Struct("<100s24x12s12s8sc100s6s82x155s12x")
_USTAR = b"ustar\0" + b"00"
_NO_CHECKSUM = b" " * 8
_ADLER_BASE = 65521
_LOW_16 = 0xFFFF
# A record's length and keyword. Extended attributes have the longest ones, and these are not read.
_RECORD = re.compile(rb"0*([0-9]{1,19}) ([^=]+)=")
_RECORD_HEAD, _PAX_BLOCK = 2**12, 2**16
# Limit for the records of one member that are read: for the map of a sparse file, and names.
VALUES_MAX = 2**20


# Name (with the ustar prefix) and link as stored, size in bytes, mtime in seconds, type. Numbers are not checked, and
# may be negative.
Header = tuple[bytes, bytes, int, int, bytes]


def parse_header(block: bytes, offset: int) -> Header:
    """Parse a block of 512 bytes at `offset` of the tar. Raises FormatError for a wrong checksum or number."""
    name, size, mtime, checksum, kind, link, magic, prefix = _READ.unpack(block)
    try:
        if adler32(block) & _LOW_16 != _expected_adler(checksum) and not _sums_signed(block, checksum):
            raise FormatError("not a tar header: its checksum is wrong", offset=offset)
        length = parse_number(size)
    except ValueError as error:
        raise FormatError(f"not a tar header: {error}", offset=offset) from error
    try:
        seconds = parse_number(mtime)
    except ValueError:  # a time is no reason to fail
        seconds = 0
    name = name.partition(b"\0")[0]
    if prefix[0] and magic == b"ustar\0":  # GNU tar, whose magic is "ustar ", has other fields there
        name = prefix.partition(b"\0")[0] + b"/" + name
    return name, link.partition(b"\0")[0] if link[0] else b"", length, seconds, kind


@lru_cache(maxsize=2**12)  # a tar has few distinct sums and times, and many sizes repeat
def parse_number(field: bytes) -> int:
    """Parse octal digits between spaces and up to a NUL, or base 256, which may be negative. An empty field is 0.

    Raises ValueError.
    """
    digits = field.partition(b"\0")[0].strip(b" ")
    if digits.isdigit():
        return int(digits, 8)
    if field[0] & 0x80:
        sign = field[0] & 0x40
        first = field[0] if sign else field[0] & 0x7F
        return int.from_bytes(bytes((first,)) + field[1:], "big", signed=bool(sign))
    if digits:
        raise ValueError(f"{digits!r} is not a number")
    return 0


@lru_cache(maxsize=2**12)
def _expected_adler(checksum: bytes) -> int:
    """Return the lower half of the Adler-32 of a block with this checksum, where the checksum field counts as spaces.

    It is one plus the sum of all bytes, modulo 65521. zlib computes Adler-32 ten times faster than Python a sum.
    """
    return (1 + parse_number(checksum) - sum(_NO_CHECKSUM) + sum(checksum)) % _ADLER_BASE


def _sums_signed(block: bytes, checksum: bytes) -> bool:
    """Compare the checksum with the sum of signed bytes, which SunOS and some others once used."""
    total = sum(memoryview(block).cast("b")) - sum(memoryview(checksum).cast("b")) + sum(_NO_CHECKSUM)
    return total == parse_number(checksum)


def parse_pax(
    read: Callable[[int, int], bytes], offset: int, size: int, keywords: Container[bytes]
) -> tuple[list[tuple[bytes, bytes]], str]:
    """Parse the PAX records with these keywords, from `size` bytes at `offset` of the tar: keywords and values.

    Of others only the beginning is read. At a record that is not valid parsing ends, as in GNU tar and bsdtar: the text
    returned says which it is, "" if none. So it does with more than `VALUES_MAX` bytes of records.
    """
    records: list[tuple[bytes, bytes]] = []
    left, end = VALUES_MAX, offset + size
    data, start = b"", offset
    while offset < end:
        if offset + _RECORD_HEAD > start + len(data) < end:
            data, start = read(offset, min(_PAX_BLOCK, end - offset)), offset
        at = offset - start
        found = _RECORD.match(data, at)
        length = int(found[1]) if found else 0
        last = offset + length - 1
        if found is None or not found.end() + start <= last < end or read(last, 1) != b"\n":
            is_padding = not data[at:].strip(b"\0")  # which the size may include
            return records, "" if is_padding else f"{data[at : at + 40]!r} at byte {offset} is not a PAX record"
        if found[2] in keywords:
            left -= length
            if left < 0:
                return records, f"over {VALUES_MAX} bytes of PAX records at byte {offset}"
            value = start + found.end()
            records.append((found[2], read(value, last - value)))
        offset = last + 1
    return records, ""


def build_header(name: str, size: int, mtime: int = 0) -> bytes:
    """Return the header of a file of `size` bytes with `mtime` in seconds, after a PAX header if one is needed.

    Raises FormatError if a tar cannot hold so many bytes.
    """
    if not 0 <= size < SIZE_LIMIT:
        raise FormatError(f"a tar cannot hold a file of {size} bytes", offset=0)
    records = []
    if len(name) > _SHORT_NAME or not name.isascii():
        try:
            path = name.encode()
        except UnicodeEncodeError:
            path = name.encode(errors="surrogateescape")
            records.append((b"hdrcharset", b"BINARY"))
        records.append((b"path", path))
    for keyword, number in ((b"size", size), (b"mtime", mtime)):
        if not 0 <= number < _OCTAL_LIMIT:
            records.append((keyword, b"%d" % number))
    block = _build_block(name.encode("ascii", "replace"), size, mtime, b"0")
    if not records:
        return block
    pax = b"".join(_pax_record(keyword, value) for keyword, value in records)
    return _build_block(b"././@PaxHeader", len(pax), 0, b"x", mode=0) + pax + padding(len(pax)) + block


def padding(size: int) -> bytes:
    """Return the padding after data of `size` bytes."""
    return bytes(-size % BLOCK)


def end_of_archive(offset: int) -> bytes:
    """Return the end of an archive whose last member ends, with its padding, at `offset`."""
    return bytes(2 * BLOCK + -(offset + 2 * BLOCK) % _ARCHIVE_UNIT)


def _build_block(name: bytes, size: int, mtime: int, kind: bytes, mode: int = 0o644) -> bytes:
    size, mtime = (number if 0 <= number < _OCTAL_LIMIT else 0 for number in (size, mtime))
    user = b"%07o" % 0
    before = (name, b"%07o" % mode, user, user, b"%011o" % size, b"%011o" % mtime)
    after = (kind, b"", _USTAR, b"", b"", b"", b"")
    checksum = b"%06o\0 " % sum(_LAYOUT.pack(*before, _NO_CHECKSUM, *after))
    return _LAYOUT.pack(*before, checksum, *after)


def _pax_record(keyword: bytes, value: bytes) -> bytes:
    """Return a PAX record. Its length includes its own digits."""
    rest = b" " + keyword + b"=" + value + b"\n"
    length = len(rest)
    while length != (longer := len(rest) + len(str(length))):
        length = longer
    return b"%d" % length + rest
