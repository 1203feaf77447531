"""Sparse files in a tar: only the pieces between the holes are stored, end to end, and a map has their offsets.

    GNU's old format    type S; four pairs in the header, more in blocks after it
    PAX 0.0, 0.1        the map is in PAX records: as pairs of them, or all in one
    PAX 1.0             the map is text before the data, one number per line, and padded to a block

A map may end with an empty piece, which only marks the size of the file. From any format the result has its pieces in
order, without empty ones, inside the file, and with as many bytes as are stored.

Source: "Storing Sparse Files" in GNU tar's manual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from touchfs.containers.tar.layout.header import BLOCK, SIZE_LIMIT, parse_number
from touchfs.core.errors import FormatError

# Offset and size of the pieces, in order
SparseMap = tuple[tuple[int, int], ...]
Read = Callable[[int, int], bytes]

# 40 thousand pieces, in the longest way of writing them
MAP_SIZE_MAX = 2**20

MAP = b"GNU.sparse.map"
# The header's own name has the process id in it, and its size is that of the stored data.
NAME = b"GNU.sparse.name"
PAX_KEYWORDS = frozenset(
    {MAP, NAME, b"GNU.sparse.size", b"GNU.sparse.realsize", b"GNU.sparse.major", b"GNU.sparse.minor"}
)
# 0.0 repeats these two; their concatenated values are the map of 0.1.
PAX_PAIR = (b"GNU.sparse.offset", b"GNU.sparse.numbytes")

# Offsets in the old format's header: pairs, whether blocks follow, the file's size; and in such a block
_PAIRS_AT, _PAIRS, _MORE_AT, _SIZE_AT = 386, 4, 482, 483
_BLOCK_PAIRS, _BLOCK_MORE_AT = 21, 504
_NUMBER = 12


def scan_old(block: bytes, read: Read, offset: int, end: int) -> tuple[SparseMap, int, int]:
    """Parse a map of the old format: `block` is the header that ends at `offset`, and `end` is the size of the tar.

    Returns the map, the file's size and the offset of its data. Raises FormatError.
    """
    start = offset - BLOCK
    numbers = _old_numbers(block, _PAIRS_AT, 2 * _PAIRS, start)
    (size,) = _old_numbers(block, _SIZE_AT, 1, start)
    more = block[_MORE_AT]
    while more:
        if offset - start > MAP_SIZE_MAX or offset + BLOCK > end:
            raise FormatError("the map of a sparse file does not end", offset=start)
        block = read(offset, BLOCK)
        numbers += _old_numbers(block, 0, 2 * _BLOCK_PAIRS, offset)
        more = block[_BLOCK_MORE_AT]
        offset += BLOCK
    return _pieces(numbers), size, offset


def _old_numbers(block: bytes, at: int, count: int, offset: int) -> list[int]:
    try:
        return [parse_number(block[i : i + _NUMBER]) for i in range(at, at + count * _NUMBER, _NUMBER)]
    except ValueError as error:
        raise FormatError(f"the map of a sparse file: {error}", offset=offset) from error


def scan_pax(fields: Mapping[bytes, bytes], read: Read, offset: int, end: int) -> tuple[SparseMap, int, int] | None:
    """Like `scan_old`, of a member with these PAX records and data at `[offset, end)`; None if it is not sparse."""
    size = fields.get(b"GNU.sparse.realsize") or fields.get(b"GNU.sparse.size")
    if fields.get(b"GNU.sparse.major") == b"1":
        numbers, start = _text_numbers(read, offset, end)
    elif MAP in fields:
        numbers, start = [_decimal(number, offset) for number in fields[MAP].split(b",") if number], offset
    else:
        return None
    if size is None:
        raise FormatError("a sparse file without its size", offset=offset)
    return _pieces(numbers), _decimal(size, offset), start


def _text_numbers(read: Read, offset: int, end: int) -> tuple[list[int], int]:
    """Read the text map of PAX 1.0, which is the number of pairs and then the pairs. Returns the numbers of the pairs,
    and the offset of the data.
    """
    blocks: list[bytes] = []
    at, lines, expected = offset, 0, 1
    while lines < expected:
        if at - offset > MAP_SIZE_MAX or at + BLOCK > end:
            raise FormatError("the map of a sparse file does not end", offset=offset)
        blocks.append(read(at, BLOCK))
        if at == offset:
            expected += 2 * _decimal(blocks[0].partition(b"\n")[0], offset)
        lines += blocks[-1].count(b"\n")
        at += BLOCK
    return [_decimal(number, offset) for number in b"".join(blocks).split(b"\n")[1:expected]], at


def _decimal(digits: bytes, offset: int) -> int:
    number = digits.lstrip(b"0") or digits[:1]
    if not number.isdigit() or len(number) > len(str(SIZE_LIMIT)):
        raise FormatError(f"{digits[:40]!r} in the map of a sparse file is not a number", offset=offset)
    return int(number)


def _pieces(numbers: list[int]) -> SparseMap:
    pairs = zip(numbers[::2], numbers[1::2], strict=False)
    return tuple((offset, size) for offset, size in pairs if size)


def check(pieces: SparseMap, size: int, stored: int, header_offset: int) -> None:
    """Raise FormatError unless the pieces are in order in a file of `size` bytes and have `stored` bytes together."""
    position = 0
    for offset, length in pieces:
        if offset < position or length < 0 or offset + length > size:
            raise FormatError(f"the map of a sparse file of {size} bytes is wrong", offset=header_offset)
        position = offset + length
    if not 0 <= size < SIZE_LIMIT or sum(length for _, length in pieces) != stored:
        raise FormatError(f"the map of a sparse file does not fit its {stored} bytes of data", offset=header_offset)
