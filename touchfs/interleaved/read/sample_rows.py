"""The rows of one sample of a tar: its metadata, then its texts and images in the order of their positions.

    sample_id  position  modality  content_type      text_content  source_ref
    a          -1        metadata  application/json                {"path": "x.tar", "member": "a.json", …}
    a          0         text      text/plain        Once          {"path": "x.tar", "member": "a.json", …}
    a          1         image     image/jpeg                      {"path": "x.tar", "member": "a.1.jpg", …}

Source: nemo_curator/stages/interleaved/io/readers/webdataset.py of NeMo Curator 1.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from touchfs.containers.tar.layout.members import Member
from touchfs.core.errors import FormatError
from touchfs.interleaved.items.schema import INTERLEAVED_SCHEMA
from touchfs.interleaved.layout.columns import IMAGE, METADATA, METADATA_POSITION, TEXT
from touchfs.interleaved.layout.document import Document
from touchfs.interleaved.layout.image_members import place_images
from touchfs.interleaved.layout.source_ref import NO_SOURCE, format_source_ref
from touchfs.interleaved.read.column_types import build_column
from touchfs.interleaved.read.item_tar import ItemTar

_NO_SOURCE = format_source_ref(NO_SOURCE)
_RESERVED = frozenset(INTERLEAVED_SCHEMA.names)


class ItemRow(NamedTuple):
    """A row. `passthrough` has the values of its other columns; `image` and `frame` are the member that it is."""

    sample_id: str
    position: int
    modality: str
    content_type: str | None
    text_content: str | None
    source_ref: str
    passthrough: Mapping[str, Any]
    image: Member | None = None
    frame: int | None = None


def sample_rows(
    tar: ItemTar, member: Member, document: Document, passthrough: Mapping[str, Any], extensions: Sequence[str]
) -> list[ItemRow]:
    """Return the rows of the sample whose JSON is `member`. `extensions` are those of images."""
    sample_id = document.sample_id if document.sample_id is not None else tar.sample_id(member)
    ref = tar.source_ref(member)
    metadata = ItemRow(sample_id, METADATA_POSITION, METADATA, "application/json", None, ref, passthrough)
    texts = [
        ItemRow(sample_id, position, TEXT, "text/plain", text, ref, values)
        for (position, text), values in zip(document.texts, _per_item(document.per_text), strict=False)
    ]
    keys = (sample_id, member.name.rpartition(".")[0])
    images = []
    placed = place_images(document, keys, tar.members, extensions)
    for image, values in zip(placed, _per_item(document.per_image), strict=False):
        found = None if image.member is None else tar.members[image.member]
        ref = _NO_SOURCE if found is None else tar.source_ref(found, image.frame_index)
        row = ItemRow(sample_id, image.position, IMAGE, image.content_type, None, ref, values, found, image.frame_index)
        images.append(row)
    return [metadata, *sorted(texts + images, key=lambda row: row.position)]


def build_table(rows: Sequence[ItemRow], columns: Sequence[tuple[str, pa.DataType]]) -> pa.Table:
    """Return rows as a table of the reserved columns and of these others, without bytes of images."""
    reserved = {name: [getattr(row, name) for row in rows] for name in ItemRow._fields if name in _RESERVED}
    arrays = [
        pa.array(reserved[field.name], field.type) if field.name in reserved else pa.nulls(len(rows), field.type)
        for field in INTERLEAVED_SCHEMA
    ]
    arrays += [build_column([row.passthrough.get(name) for row in rows], kind) for name, kind in columns]
    schema = pa.schema([*INTERLEAVED_SCHEMA, *(pa.field(name, kind) for name, kind in columns)])
    return pa.table(arrays, schema=schema)


def check_text(rows: Sequence[ItemRow]) -> None:
    """Raise FormatError if a text has half of a pair of surrogates, which no column of Arrow can have."""
    try:
        rows[0].sample_id.encode()
        for row in rows:
            (row.text_content or "").encode()
            json.dumps(row.passthrough, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise FormatError("a name or a text is not Unicode: it has half of a surrogate pair") from error


def _per_item(values: Mapping[str, list[Any]]) -> Iterator[Mapping[str, Any]]:
    """The values of each item in order, without end."""
    number = 0
    while True:
        yield {name: each[number] for name, each in values.items() if number < len(each)}
        number += 1
