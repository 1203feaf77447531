"""The form of texts and of metadata that are in the JSON of an interleaved sample.

The JSON is parsed once for all its parts, when the first of them is read. They are kept in memory together, among the
windows of `touchfs.form.computed`.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content, Extent
from touchfs.form.base import Form
from touchfs.form.computed import WINDOWS
from touchfs.form.kept import identity_of
from touchfs.interleaved.layout.document import Document, SampleFields, parse_document
from touchfs.limits import Limits

# The number of a part and its size in bytes; of metadata, the id of the sample follows.
_PART = struct.Struct("<IQ")
_NUMBER = struct.Struct("<Q")
_METADATA = 0
_ID = "sample_id"
_FIELDS = SampleFields(sample_id_field=_ID)


def parse_stored_document(data: Buffer, limits: Limits) -> Document:
    """The document in the JSON of a sample, whose fields have their usual names. Raises FormatError."""
    return parse_document(bytes(data), _FIELDS, limits.json)


def document_parts(document: Document) -> list[bytes]:
    """The parts of a document: the object of its other fields, and then its texts, in their order.

    Halves of surrogate pairs are escaped in the object, and encoded as UTF-8 would encode them in texts.
    """
    try:
        metadata = json.dumps(document.passthrough, ensure_ascii=False)
    except RecursionError as error:  # writing a nested object takes more stack than reading it
        raise FormatError("its fields are nested too deep to be repeated") from error
    texts = (text.encode("utf-8", "surrogatepass") for _, text in document.texts)
    return [metadata.encode("utf-8", "backslashreplace"), *texts]


def text_detail(number: int, text: Buffer) -> bytes:
    return _PART.pack(number, len(text))


def metadata_detail(sample_id: str, others: bytes) -> bytes:
    """The detail of the metadata of a sample, whose other fields are the first part."""
    encoded = sample_id.encode("utf-8", "replace")  # a name in a tar may be anything
    return _PART.pack(_METADATA, len(_metadata(encoded, others))) + encoded


def _metadata(sample_id: bytes, others: bytes) -> bytes:
    head = json.dumps({_ID: sample_id.decode("utf-8", "replace")}, ensure_ascii=False).encode()
    return (head if others == b"{}" else head[:-1] + b", " + others[1:]) + b"\n"


@dataclass(frozen=True, slots=True)
class DocumentPart(Form):
    """`document`: a part of the JSON that is stored. `detail` is of `text_detail` or `metadata_detail`."""

    def __str__(self) -> str:
        return "document"

    def size(self, length: int, detail: bytes) -> int:
        return _parse(detail)[1]

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        number, size = _parse(detail)
        return _PartContent(extent, limits, number, size, detail[_PART.size :])


DOCUMENT = DocumentPart()


def _parse(detail: bytes) -> tuple[int, int]:
    if len(detail) < _PART.size:
        raise FormatError("the catalog's place of a text is damaged: index with --force")
    number, size = _PART.unpack_from(detail)
    return number, size


class _PartContent:
    """The bytes of a part. A read blocks until its document is parsed."""

    __slots__ = ("_extent", "_limits", "_number", "_sample_id", "size")

    def __init__(self, extent: Extent, limits: Limits, number: int, size: int, sample_id: bytes) -> None:
        self._extent = extent
        self._limits = limits
        self._number = number
        self._sample_id = sample_id
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        packed = self._known()
        if packed is None:
            with _parsing:
                packed = self._known() or self._made()
        return self._part(packed)[offset : offset + length]

    def read_nowait(self, offset: int, length: int) -> bytes | None:
        packed = self._known()
        return None if packed is None else self._part(packed)[offset : offset + length]

    def _known(self) -> Buffer | None:
        identity = identity_of(self._extent)
        return None if identity is None else WINDOWS.find(((str(DOCUMENT), identity), 0))

    def _made(self) -> Buffer:
        data = self._extent.read(0, min(self._extent.size, self._limits.json + 1))
        packed = _pack(document_parts(parse_stored_document(data, self._limits)))
        identity = identity_of(self._extent)  # known since the read
        if identity is not None:
            WINDOWS.keep(((str(DOCUMENT), identity), 0), packed)
        return packed

    def _part(self, packed: Buffer) -> bytes:
        part = _unpack(packed, self._number)
        if self._number == _METADATA:
            part = _metadata(self._sample_id, part)
        if len(part) != self.size:
            raise FormatError("the catalog's size of a text is wrong: index with --force")
        return part


# Parsing takes some milliseconds of Python; two at once would take twice as long each.
_parsing = threading.Lock()


def _pack(parts: Sequence[bytes]) -> bytes:
    """Parts as one buffer: their number, where each ends, and their bytes."""
    ends, end = [], 0
    for part in parts:
        end += len(part)
        ends.append(_NUMBER.pack(end))
    return b"".join((_NUMBER.pack(len(parts)), *ends, *parts))


def _unpack(packed: Buffer, number: int) -> bytes:
    count: int = _NUMBER.unpack_from(packed)[0]
    if number >= count:
        raise FormatError("the sample has no such text: index with --force")
    head = _NUMBER.size * (count + 1)
    start = _NUMBER.unpack_from(packed, _NUMBER.size * number)[0] if number else 0
    end = _NUMBER.unpack_from(packed, _NUMBER.size * (number + 1))[0]
    return bytes(packed[head + start : head + end])
