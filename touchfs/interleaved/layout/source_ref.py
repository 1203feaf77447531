"""Locators of images as NeMo Curator stores them: a JSON object in the column `source_ref`.

    {"path": "…/00000.tar", "member": "a.0.jpg", "byte_offset": 1536, "byte_size": 2048}

`frame_index` follows only for a frame of a TIFF file. We add `checksum` where a FILE group had one; Curator ignores
keys that it does not know.

Source: nemo_curator/tasks/interleaved.py of NeMo Curator 1.4.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from touchfs.core.errors import FieldTypeError, FormatError
from touchfs.limits import too_long

# A path on Linux has at most 4096 bytes, a URL with a signature a few thousand.
SIZE_MAX = 1 << 16


class SourceRef(NamedTuple):
    """The location of an item's bytes: `byte_size` bytes at `byte_offset` of the file at `path`. In a tar they are its
    `member`; in a TIFF, the item is the frame `frame_index` of them. What is None is not known or does not apply.
    """

    path: str | None = None
    member: str | None = None
    byte_offset: int | None = None
    byte_size: int | None = None
    frame_index: int | None = None
    checksum: str | None = None


NO_SOURCE = SourceRef()


def parse_source_ref(text: str | None) -> SourceRef:
    """Return the locator in a value of the column; None and the empty text give a locator without a path.

    Raises FormatError if it is not JSON or a number is negative, and FieldTypeError, which is also a TypeError, if it
    is not an object or a value in it has another type.
    """
    if not text:
        return NO_SOURCE
    if len(text) > SIZE_MAX:
        raise FormatError(too_long("source_ref", SIZE_MAX))
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("source_ref is not JSON") from error
    if not isinstance(fields, dict):
        raise FieldTypeError("source_ref must decode to a JSON object")
    return SourceRef(
        path=_text(fields, "path"),
        member=_text(fields, "member"),
        byte_offset=_number(fields, "byte_offset"),
        byte_size=_number(fields, "byte_size"),
        frame_index=_number(fields, "frame_index"),
        checksum=_text(fields, "checksum"),
    )


def format_source_ref(ref: SourceRef) -> str:
    """Return the JSON of a locator. Its first four keys are always there."""
    fields = ref._asdict()
    for key in ("frame_index", "checksum"):
        if fields[key] is None:
            del fields[key]
    return json.dumps(fields)


def _text(fields: dict[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if value is None:
        return None
    text = str(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise FormatError(f"source_ref: {key} has half of a surrogate pair, which is not Unicode") from error
    return text


def _number(fields: dict[str, Any], key: str) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise FieldTypeError(f"source_ref: {key} is not a number") from error
    if not 0 <= number < 2**63:
        raise FormatError(f"source_ref: {key} is not a number of bytes or frames: {number}")
    return number
