"""`wds2idx` of NVIDIA DALI: `x.idx` beside `x.tar`, a text with a line for each sample.

    v1.2 NSAMPLES
    EXTENSION OFFSET SIZE NAME EXTENSION OFFSET SIZE NAME …

Earlier versions have no names. What `wds2idx` skips, such as hidden files, leaves a gap. It writes the names as GNU tar
lists them: one with a backslash, by which tar escapes bytes, is refused, and so is one with a space.

Source: tools/wds2idx.py of NVIDIA/DALI.
"""

from __future__ import annotations

import io

from touchfs.containers.tar.adopted.listed import ListedMember
from touchfs.core.errors import FormatError

SUFFIX = ".idx"
_VERSION = "v1.2"
_FIELDS = 4
_DIGITS_MAX = 19


def parse(data: bytes, size: int) -> list[ListedMember]:
    """The members that an index lists. Raises FormatError. The index does not know the `size` of the tar."""
    listed: list[ListedMember] = []
    try:
        lines = io.TextIOWrapper(io.BytesIO(data), "ascii", newline="\n")
        version, _, count = next(lines, "").rstrip("\n").partition(" ")
        if version != _VERSION:
            raise FormatError(f"it begins with {version[:10]!r}, and only {_VERSION} of wds2idx names files")
        samples = 0
        for samples, line in enumerate(lines, 1):
            fields = line.rstrip("\n").split(" ")
            if len(fields) % _FIELDS or "\\" in line:
                raise FormatError(f"line {samples + 1} has no four fields for each file: {line[:80]!r}")
            places = zip(fields[3::_FIELDS], fields[1::_FIELDS], fields[2::_FIELDS], strict=True)
            listed += [ListedMember(name, _number(offset), _number(length)) for name, offset, length in places]
    except UnicodeDecodeError as error:
        raise FormatError("it is not ASCII") from error
    if count != str(samples):
        raise FormatError(f"it has {samples} lines, and says {count[:20]!r}: it may have been cut")
    return listed


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS_MAX:
        raise FormatError(f"{text[:40]!r} is not an offset or a size")
    return int(text)
