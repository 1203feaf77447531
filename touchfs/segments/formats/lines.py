"""The lines of a text file of any size, from its bytes in blocks.

The text is UTF-8, or UTF-16 if it begins with a byte order mark. A line ends with LF, CR LF or CR, and has at most
`LINE_MAX` characters. At most one block and one line are in memory. An error names the line, counted from 1.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

from touchfs.core.control_characters import quote_name
from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer

# The transcript of an hour of speech, on one line, has about 60,000 characters.
LINE_MAX = 2**20
# Characters of the text of one segment, which may have several lines.
TEXT_MAX = 2**20
# Bytes of a file that can only be read as a whole. `SEGMENTS_MAX` segments in a TextGrid have about half of it.
SIZE_MAX = 2**26
_BLOCK = 2**16
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_NUMBER = re.compile(r"[-+]?([0-9]{1,12}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][-+]?[0-9]{1,2})?")

Line = tuple[int, str]


def at_most(limit: int, blocks: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield the blocks of a file in parts of at most 64 KiB. Raises FormatError if it has over `limit` bytes."""
    size = 0
    for block in blocks:
        size += len(block)
        if size > limit:
            raise FormatError(f"has over {limit:,} bytes: split it")
        yield from (block[at : at + _BLOCK] for at in range(0, len(block), _BLOCK))


def lines(blocks: Iterable[Buffer]) -> Iterator[Line]:
    """Yield each line with its number, without its end. Raises FormatError for other encodings and longer lines."""
    number, tail = 0, ""
    for text in _decoded(blocks):
        tail += text
        # A CR at the end may be the first half of CR LF, so it waits.
        half = "\r" if tail.endswith("\r") else ""
        *complete, tail = tail[: len(tail) - len(half)].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in complete:
            number += 1
            yield number, _checked(number, line)
        tail = _checked(number + 1, tail) + half
    for line in tail.removesuffix("\r").split("\n") if tail else ():
        number += 1
        yield number, line


def _checked(number: int, line: str) -> str:
    if len(line) > LINE_MAX:
        raise at_line(number, f"has over {LINE_MAX:,} characters")
    return line


def _decoded(blocks: Iterable[Buffer]) -> Iterator[str]:
    start, line = b"", 1
    decoder: codecs.IncrementalDecoder | None = None
    try:
        for block in blocks:
            for at in range(0, len(block), _BLOCK):
                data = bytes(block[at : at + _BLOCK])
                if decoder is None:
                    start += data
                    if len(start) < len(codecs.BOM_UTF8):
                        continue
                    decoder, data = _decoder(start), start
                text = decoder.decode(data)
                yield text
                line += text.count("\n")
        if decoder is None:
            decoder = _decoder(start)
            yield decoder.decode(start)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        line += error.object[: error.start].count(b"\n")
        raise at_line(line, f"is not {error.encoding.upper()}: convert the file to UTF-8") from error


def _decoder(start: bytes) -> codecs.IncrementalDecoder:
    name = "utf-16" if start.startswith(_UTF_16) else "utf-8-sig"
    return codecs.getincrementaldecoder(name)("strict")


def fields(blocks: Iterable[Buffer], comment: str, limit: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each line that is neither blank nor a comment, separated by white space.

    There are at most `limit`; the last one is the rest of the line.
    """
    for number, line in lines(blocks):
        if comment and line.lstrip().startswith(comment):
            continue
        found = line.split(None, limit - 1)
        if found:
            yield number, [*found[:-1], found[-1].rstrip()]


def seconds(number: int, text: str) -> float:
    """Return the time in seconds that a line states as a decimal number. Raises FormatError."""
    if not _NUMBER.fullmatch(text):
        raise at_line(number, f"{shown(text)} is not a time in seconds")
    return float(text)


def shown(text: str) -> str:
    """Return the beginning of a text, for a message on one line."""
    return f"'{quote_name(text[:60])}'" + "…" * (len(text) > 60)


def at_line(number: int, problem: str) -> FormatError:
    return FormatError(f"line {number}: {problem}")
