"""The members of a tar, found by reading headers only: each tells where the next one is.

`members` is given a function that reads rather than being a plan. A plan gives its result at the end, and that would be
all the members of a tar, of which there can be millions; so they come out one by one, and nothing is kept of them.

All that tar is called is understood: the old one of 1979, ustar, PAX, GNU's long names, big numbers and sparse files,
and archives that were strung together (zero blocks end an archive, but another one may follow). There need be no zero
blocks at the end. The rest of a file after the end of an archive that does not begin with a header is given out as a
last member of the kind GARBAGE. Anything else out of order raises FormatError, after all members before it.

Source: pax in POSIX.1-2017, tar(5) of libarchive, GNU tar's manual, Lib/tarfile.py.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from touchfs.errors import FormatError
from touchfs.extent import Buffer
from touchfs.format.tar import sparse as tar_sparse
from touchfs.format.tar.header import BLOCK, Header, parse_header, parse_pax

Read = Callable[[int, int], Buffer]
_Read = Callable[[int, int], bytes]

# Of all the headers and records before one member. Linux allows 64 KiB for each extended attribute.
EXTENSION_SIZE_MAX = 2**20
# From little more than the headers of a pair, to as much as still fits a processor's own cache.
_READ_MIN, _READ_MAX = 2**11, 2**16

_ZEROS = bytes(BLOCK)
_GLOBAL, _LONG_NAME, _LONG_LINK, _OLD_SPARSE = b"g", b"L", b"K", b"S"
_EXTENSIONS = frozenset((b"x", b"X", _GLOBAL, _LONG_NAME, _LONG_LINK))
_FILE, _OLD_FILE = b"0", b"\0"
_WITHOUT_DATA = frozenset((b"1", b"2", b"3", b"4", b"5", b"6"))  # whatever their size says
_KEYWORDS = frozenset((b"path", b"linkpath", b"size", b"mtime")) | tar_sparse.PAX_KEYWORDS
_TIME = re.compile(rb"(-?)([0-9]{1,11})(?:\.([0-9]*))?")
_SECOND_NS = 10**9
_SECONDS_MAX = 2**63 // _SECOND_NS - 1  # later times, and as long before 1970, do not fit 64 bits, and are cut to this
_DIGITS_MAX = 20


class MemberType(enum.Enum):
    FILE = "file"
    DIRECTORY = "directory"
    HARD_LINK = "hard link"
    SYMBOLIC_LINK = "symbolic link"
    OTHER = "other"  # a device, a pipe, or something of one tar's own
    GARBAGE = "garbage"


_FILE_KIND, _DIRECTORY, _OTHER = (
    MemberType.FILE,
    MemberType.DIRECTORY,
    MemberType.OTHER,
)  # an enumeration's attributes are slow
_LINKS = (MemberType.HARD_LINK, MemberType.SYMBOLIC_LINK)
_KINDS = {
    _FILE: MemberType.FILE,
    b"7": MemberType.FILE,
    _OLD_FILE: MemberType.FILE,
    _OLD_SPARSE: MemberType.FILE,
    b"1": MemberType.HARD_LINK,
    b"2": MemberType.SYMBOLIC_LINK,
    b"5": MemberType.DIRECTORY,
    b"D": MemberType.DIRECTORY,
}


class Member(NamedTuple):
    """Bytes that are not UTF-8 are escaped in `name` and `link` as in file names, and a directory has no last slash."""

    name: str
    kind: MemberType
    header_offset: int  # of the first block that belongs to it
    offset: int  # of its data
    size: int  # of the file; of a sparse one, with its holes
    link: str
    mtime_ns: int
    pieces: tar_sparse.SparseMap | None = None  # of a sparse file: (offset in the file, size), stored end to end

    @property
    def stored(self) -> int:
        """How many bytes of data there are in the tar."""
        return self.size if self.pieces is None else sum(size for _, size in self.pieces)

    @property
    def end(self) -> int:
        """Where the next header is, if there is one."""
        return self.offset + _padded(self.stored)


def members(read: Read, size: int) -> Iterator[Member]:
    """In the order of a tar of `size` bytes. `read(offset, length)` gives all of these bytes or raises."""
    return scan(ReadAhead(read, size))


def scan(source: ReadAhead) -> Iterator[Member]:
    """In the order of a tar. When a member comes out, much of what `source` has read last are its first bytes."""
    ahead, size = source.read, source.size
    new = tuple.__new__
    common: dict[bytes, bytes] = {}  # PAX records for all that follows
    own: dict[bytes, bytes] = {}  # and for the next member
    first = None  # where the headers that come before its own begin
    ended = False
    offset = 0
    while offset + BLOCK <= size:
        block = ahead(offset, BLOCK)
        if block == _ZEROS and first is None:
            ended = True
            common = {}
            offset += BLOCK
            continue
        try:
            header = name, _, length, mtime, kind = parse_header(block, offset)
        except FormatError:
            if not ended:
                raise
            break
        ended = False
        start = offset if first is None else first
        offset += BLOCK
        plain = kind == _FILE and first is None and not common
        if plain and 0 <= length <= size - offset and 0 <= mtime <= _SECONDS_MAX:
            # As nearly all are: without this branch, and Member's own constructor instead, it takes half as long again.
            text = name.decode("utf-8", "surrogateescape")
            yield new(Member, (text, _FILE_KIND, start, offset, length, "", mtime * _SECOND_NS, None))
            offset += length + -length % BLOCK
        elif kind in _EXTENSIONS:
            end = offset + _padded(length)
            if not 0 <= length <= size - offset or end - start > EXTENSION_SIZE_MAX:
                raise FormatError(f"a tar header that {length} bytes of further header should follow", offset=start)
            fields = _extension(kind, ahead(offset, length), offset)
            if kind == _GLOBAL:
                common |= fields
            else:
                own |= fields
                first = start
            offset = end
        else:
            member = _member(header, block, {**common, **own}, start, offset, size, ahead)
            yield member
            own, first = {}, None
            offset = member.end
    if first is not None:
        raise FormatError("the tar ends between the headers of a member", offset=first)
    left = size - offset
    if left > 0 and (left >= BLOCK or any(ahead(offset, left))):
        if not ended:
            raise FormatError("the tar ends inside a header", offset=offset)
        yield Member("", MemberType.GARBAGE, offset, offset, left, "", 0)


def _extension(kind: bytes, data: bytes, offset: int) -> dict[bytes, bytes]:
    if kind == _LONG_NAME:
        return {b"path": data.partition(b"\0")[0]}
    if kind == _LONG_LINK:
        return {b"linkpath": data.partition(b"\0")[0]}
    records = parse_pax(data, offset)
    fields = {keyword: value for keyword, value in records if keyword in _KEYWORDS}
    if pairs := [value for keyword, value in records if keyword in tar_sparse.PAX_PAIR]:
        fields[tar_sparse.MAP] = b",".join(pairs)
    return fields


def _member(
    header: Header, block: bytes, fields: Mapping[bytes, bytes], first: int, offset: int, tar_size: int, read: _Read
) -> Member:
    """`fields` are what came before its header, which ends at `offset`. An empty one counts as absent."""
    name, link, stored, mtime, header_type = header
    mtime_ns = min(max(mtime, -_SECONDS_MAX), _SECONDS_MAX) * _SECOND_NS
    if fields:
        name = fields.get(tar_sparse.NAME) or fields.get(b"path") or name
        link = fields.get(b"linkpath") or link
        stored, mtime_ns = _size(fields, stored, first), _mtime_ns(fields, mtime_ns)
    text = name.decode("utf-8", "surrogateescape")
    kind = _KINDS.get(header_type, _OTHER)
    if header_type in _WITHOUT_DATA:
        stored = 0
    if kind is _DIRECTORY or (header_type == _OLD_FILE and name.endswith(b"/")):
        kind, text, stored = _DIRECTORY, text.rstrip("/"), 0
    pieces, size = None, stored
    if header_type == _OLD_SPARSE:
        pieces, size, offset = tar_sparse.scan_old(block, read, offset, tar_size)
    if not 0 <= stored <= tar_size - offset:
        left = tar_size - offset
        raise FormatError(f"member {text!r} should have {stored} bytes and is cut short after {left}", offset=first)
    if (
        fields
        and kind is MemberType.FILE
        and (sparse := tar_sparse.scan_pax(fields, read, offset, offset + stored)) is not None
    ):
        pieces, size, start = sparse
        offset, stored = start, stored - (start - offset)
    if pieces is not None:
        tar_sparse.check(pieces, size, stored, first)
    target = link.decode("utf-8", "surrogateescape") if kind in _LINKS else ""
    return Member(text, kind, first, offset, size, target, mtime_ns, pieces)


def _size(fields: Mapping[bytes, bytes], default: int, offset: int) -> int:
    digits = fields.get(b"size")
    if not digits:
        return default
    if not digits.isdigit() or len(digits) > _DIGITS_MAX:
        raise FormatError(f"a PAX header with a size of {digits[:40]!r}", offset=offset)
    return int(digits)


def _mtime_ns(fields: Mapping[bytes, bytes], default: int) -> int:
    """Where the record makes no sense, the header's is kept: no one is refused a file for its time."""
    time = _TIME.fullmatch(fields.get(b"mtime", b""))
    if time is None:
        return default
    sign, seconds, fraction = time.groups()
    ns = min(int(seconds), _SECONDS_MAX) * _SECOND_NS + int((fraction or b"")[:9].ljust(9, b"0"))
    return -ns if sign else ns


def _padded(size: int) -> int:
    return size + -size % BLOCK


class ReadAhead:
    """Reads ahead, and the farther, the closer together what is asked for stands. `size` is that of all there is."""

    __slots__ = ("_data", "_length", "_read", "_start", "size")

    def __init__(self, read: Read, size: int) -> None:
        self._read = read
        self.size = size
        self._start, self._data, self._length = 0, b"", _READ_MIN

    def read(self, offset: int, length: int) -> bytes:
        at = offset - self._start
        data = self._data[at : at + length] if at >= 0 else b""
        return data if len(data) == length else self._fill(offset, length)

    def peek(self, offset: int, length: int) -> bytes:
        """As many of these bytes as have been read already."""
        at = offset - self._start
        return self._data[at : at + length] if at >= 0 else b""

    def _fill(self, offset: int, length: int) -> bytes:
        # Comparisons, where min() and max() would take a tenth of all indexing.
        ahead = self._length
        if offset - self._start - len(self._data) >= ahead:
            ahead = _READ_MIN
        elif ahead < _READ_MAX:
            ahead *= 2
        self._length = ahead
        if ahead < length:
            ahead = length
        if ahead > self.size - offset:
            ahead = self.size - offset
        data = self._read(offset, ahead)
        self._start, self._data = offset, data if isinstance(data, bytes) else bytes(data)
        if len(data) < length:
            raise FormatError(f"the tar ends before its {self.size} bytes", offset=offset + len(data))
        return self._data[:length]
