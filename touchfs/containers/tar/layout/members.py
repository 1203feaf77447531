"""The members of a tar, found by reading headers only: each header gives the offset of the next one.

`members` takes a read function and is not a codec of the type `Reads`. That would return its result at the end, all
members of a tar at once, and there can be millions; so they are yielded one by one and not kept.

All dialects of tar are understood: the format of 1979, ustar, PAX, GNU's long names, big numbers and sparse files, and
concatenated archives (zero blocks end an archive, but another one may follow). Zero blocks at the end may be missing.
Data after the end of an archive that does not begin with a header is yielded as a last member of type GARBAGE. What
is wrong with one member alone is its `problem`: then an extension header or a map of holes is not used. Any other error
raises FormatError, after all members before it.

Source: pax in POSIX.1-2017, tar(5) of libarchive, GNU tar's manual, Lib/tarfile.py.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from touchfs.containers.tar.layout import sparse as tar_sparse
from touchfs.containers.tar.layout.header import BLOCK, Header, parse_header, parse_pax
from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.limits import too_many_members

Read = Callable[[int, int], Buffer]
_Read = Callable[[int, int], bytes]

# Limit for a name. Linux allows 4 KiB.
EXTENSION_SIZE_MAX = 2**20
# From a little more than the headers of a pair to a size that fits a processor's own cache.
_READ_MIN, _READ_MAX = 2**11, 2**16

# Memory that a member takes until its shard is indexed: itself, a letter of its name, and a piece of a sparse one.
_MEMBER_SIZE, _LETTER_SIZE, _PIECE_SIZE = 1100, 8, 150

_ZEROS = bytes(BLOCK)
_GLOBAL, _LONG_NAME, _LONG_LINK, _OLD_SPARSE = b"g", b"L", b"K", b"S"
_EXTENSIONS = frozenset((b"x", b"X", _GLOBAL, _LONG_NAME, _LONG_LINK))
_FILE, _OLD_FILE = b"0", b"\0"
_WITHOUT_DATA = frozenset((b"1", b"2", b"3", b"4", b"5", b"6"))  # whatever their size says
# Of a file that goes on from another volume; its header has another name, and is that of an ordinary file.
_VOLUME_FILE = b"GNU.volume.filename"
_KEYWORDS = frozenset((b"path", b"linkpath", b"size", b"mtime", _VOLUME_FILE)) | tar_sparse.PAX_KEYWORDS
_RECORDS = _KEYWORDS | frozenset(tar_sparse.PAX_PAIR)
_TIME = re.compile(rb"(-?)0*([0-9]{1,11})(?:\.([0-9]*))?")
_SECOND_NS = 10**9
_SECONDS_MAX = 2**63 // _SECOND_NS - 1  # times farther from 1970 do not fit 64 bits, and are clamped to this
_DIGITS_MAX = 20


class MemberType(enum.Enum):
    """The type of a member."""

    FILE = "file"
    DIRECTORY = "directory"
    HARD_LINK = "hard link"
    SYMBOLIC_LINK = "symbolic link"
    METADATA = "metadata"  # a volume label, or an access control list of the next member
    OTHER = "other"  # a device, a pipe, or something else that is no whole file: `Member.problem` says what
    GARBAGE = "garbage"  # data after the end of the archive


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
    b"V": MemberType.METADATA,
    b"A": MemberType.METADATA,
}
_DUMP_DIRECTORY = b"D"  # of `tar -g`; its data is a list of files
_DEVICE = "is a device, a pipe or the like"
_CONTINUED = "goes on from another volume of `tar -M`"
_PROBLEMS = {b"3": _DEVICE, b"4": _DEVICE, b"6": _DEVICE, b"M": _CONTINUED}


class Member(NamedTuple):
    """A member of a tar. `name` and `link` are decoded as by `os.fsdecode`; a directory's name has no final slash."""

    name: str
    kind: MemberType
    header_offset: int  # of the member's first block
    offset: int  # of the data
    size: int  # of the file in bytes; a sparse one with its holes
    link: str
    mtime_ns: int
    pieces: tar_sparse.SparseMap | None = None  # of a sparse file: (offset in the file, size), stored end to end
    problem: str = ""

    @property
    def stored(self) -> int:
        """Number of bytes of data in the tar."""
        return self.size if self.pieces is None else sum(size for _, size in self.pieces)

    @property
    def end(self) -> int:
        """Offset of the next header, if there is one."""
        return self.offset + _padded(self.stored)


def members(read: Read, size: int) -> Iterator[Member]:
    """Yield the members of a tar of `size` bytes in order. `read(offset, length)` returns all of these bytes or raises.

    Raises FormatError after the members before the error.
    """
    return scan(ReadAhead(read, size))


def scan(source: ReadAhead, offset: int = 0) -> Iterator[Member]:
    """Yield the members of a tar in order, from the header at `offset` on. When a member is yielded, `source.peek`
    often has its first bytes.

    Raises FormatError after the members before the error.
    """
    ahead, size = source.read, source.size
    new = tuple.__new__
    common: dict[bytes, bytes] = {}  # PAX records for all following members
    own: dict[bytes, bytes] = {}  # PAX records for the next member
    first = None  # offset of the first extension header before the member's own header
    problem = ""
    ended = False
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
        plain = kind == _FILE and first is None and not (common or problem)
        if plain and 0 <= length <= size - offset and 0 <= mtime <= _SECONDS_MAX:
            # Nearly all members are plain: without this branch, or with Member's constructor, scanning takes 1.5 times
            # as long.
            text = name.decode("utf-8", "surrogateescape")
            yield new(Member, (text, _FILE_KIND, start, offset, length, "", mtime * _SECOND_NS, None, ""))
            offset += length + -length % BLOCK
        elif kind in _EXTENSIONS:
            if not 0 <= length <= size - offset:
                raise FormatError(f"a tar header declares an extension of {length} bytes", offset=start)
            fields, wrong = _extension(kind, ahead, offset, length)
            problem = problem or wrong
            if kind == _GLOBAL:
                common |= fields
            else:
                own |= fields
                first = start
            offset += _padded(length)
        else:
            member = _member(header, block, {**common, **own}, start, offset, size, ahead)
            yield member._replace(problem=problem) if problem and not member.problem else member
            common.pop(_VOLUME_FILE, None)
            own, first, problem = {}, None, ""
            offset = member.end
    if first is not None:
        raise FormatError("the tar ends between the headers of a member", offset=first)
    left = size - offset
    if left > 0 and (left >= BLOCK or any(ahead(offset, left))):
        if not ended:
            raise FormatError("the tar ends inside a header", offset=offset)
        yield Member("", MemberType.GARBAGE, offset, offset, left, "", 0)


def bounded(found: Iterable[Member], limit: int) -> Iterator[Member]:
    """Yield members as long as to index all of them takes up to `limit` bytes of memory. Raises FormatError then."""
    left = limit
    for member in found:
        left -= _MEMBER_SIZE + _LETTER_SIZE * (len(member.name) + len(member.link))
        if member.pieces is not None:
            left -= _PIECE_SIZE * len(member.pieces)
        if left < 0:
            raise FormatError(too_many_members(limit), offset=member.header_offset)
        yield member


def _extension(kind: bytes, read: _Read, offset: int, length: int) -> tuple[dict[bytes, bytes], str]:
    """The fields of an extension header with its data at `offset`, and what is wrong with it, "" if nothing."""
    if kind in (_LONG_NAME, _LONG_LINK):
        if length > EXTENSION_SIZE_MAX:
            return {}, f"has a name of {length} bytes"
        return {b"path" if kind == _LONG_NAME else b"linkpath": read(offset, length).partition(b"\0")[0]}, ""
    records, problem = parse_pax(read, offset, length, _RECORDS)
    fields = {keyword: value for keyword, value in records if keyword in _KEYWORDS}
    if pairs := [value for keyword, value in records if keyword in tar_sparse.PAX_PAIR]:
        fields[tar_sparse.MAP] = b",".join(pairs)
    return fields, problem and f"has a damaged header: {problem}"


def _member(
    header: Header, block: bytes, fields: Mapping[bytes, bytes], first: int, offset: int, tar_size: int, read: _Read
) -> Member:
    """Return a member from its header, which ends at `offset`, and the `fields` of its extension headers; an empty
    field counts as absent.
    """
    name, link, stored, mtime, header_type = header
    mtime_ns = min(max(mtime, -_SECONDS_MAX), _SECONDS_MAX) * _SECOND_NS
    kind = _KINDS.get(header_type, _OTHER)
    problem = _PROBLEMS.get(header_type, f"is of the unknown type {header_type!r}") if kind is _OTHER else ""
    if fields:
        name = fields.get(tar_sparse.NAME) or fields.get(b"path") or name
        link = fields.get(b"linkpath") or link
        stored, problem = _size(fields, stored, problem)
        mtime_ns = _mtime_ns(fields, mtime_ns)
        if _VOLUME_FILE in fields:
            name, kind, problem = fields[_VOLUME_FILE] or name, _OTHER, _CONTINUED
    text = name.decode("utf-8", "surrogateescape")
    if header_type in _WITHOUT_DATA:
        stored = 0
    if kind is _DIRECTORY or (header_type == _OLD_FILE and name.endswith(b"/")):
        kind, text = _DIRECTORY, text.rstrip("/")
        stored = stored if header_type == _DUMP_DIRECTORY else 0
    pieces, size = None, stored
    if header_type == _OLD_SPARSE:
        pieces, size, offset = tar_sparse.scan_old(block, read, offset, tar_size)
    if not 0 <= stored <= tar_size - offset:
        left = tar_size - offset
        message = f"member {text!r} should have {stored} bytes and is cut short after {left}"
        raise FormatError(f"{message}, or goes on in another volume of `tar -M`", offset=first)
    end = offset + stored
    try:
        if (
            fields
            and kind is MemberType.FILE
            and (sparse := tar_sparse.scan_pax(fields, read, offset, end)) is not None
        ):
            pieces, size, start = sparse
            offset, stored = start, stored - (start - offset)
        if pieces is not None:
            tar_sparse.check(pieces, size, stored, first)
    except FormatError as error:  # where its data ends is known
        kind, pieces, size, problem = _OTHER, None, end - offset, f"has {error.message}"
    target = link.decode("utf-8", "surrogateescape") if kind in _LINKS else ""
    return Member(text, kind, first, offset, size, target, mtime_ns, pieces, problem)


def _size(fields: Mapping[bytes, bytes], default: int, problem: str) -> tuple[int, str]:
    """The size and what is wrong with it. As in GNU tar, the header's counts where the PAX record is no number."""
    digits = fields.get(b"size")
    if not digits:
        return default, problem
    if not digits.isdigit() or len(digits.lstrip(b"0")) > _DIGITS_MAX:
        return default, problem or f"has a damaged header: a PAX size of {digits[:40]!r}"
    return int(digits.lstrip(b"0") or b"0"), problem


def _mtime_ns(fields: Mapping[bytes, bytes], default: int) -> int:
    """Return the mtime of a PAX record; if that is missing or invalid, the header's, as a time is no reason to fail."""
    time = _TIME.fullmatch(fields.get(b"mtime", b""))
    if time is None:
        return default
    sign, seconds, fraction = time.groups()
    ns = min(int(seconds), _SECONDS_MAX) * _SECOND_NS + int((fraction or b"")[:9].ljust(9, b"0"))
    return -ns if sign else ns


def _padded(size: int) -> int:
    return size + -size % BLOCK


class ReadAhead:
    """Reads ahead, adaptively: the closer the reads are to each other, the farther ahead. `size` is the tar's size."""

    __slots__ = ("_data", "_length", "_read", "_start", "size")

    def __init__(self, read: Read, size: int) -> None:
        self._read = read
        self.size = size
        self._start, self._data, self._length = 0, b"", _READ_MIN

    def read(self, offset: int, length: int) -> bytes:
        """Return all of these bytes. Raises FormatError if the tar is shorter."""
        at = offset - self._start
        data = self._data[at : at + length] if at >= 0 else b""
        return data if len(data) == length else self._fill(offset, length)

    def peek(self, offset: int, length: int) -> bytes:
        """Return as many of these bytes as are in memory, without reading."""
        at = offset - self._start
        return self._data[at : at + length] if at >= 0 else b""

    def _fill(self, offset: int, length: int) -> bytes:
        # Comparisons, because min() and max() would take a tenth of all indexing.
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
