"""A sample of a tar: its images as members, and the JSON with its texts.

    {"sample_id": "a.b", "texts": ["Once", null], "images": [null, "a%2Eb.1.jpg"], "license": "CC0"}

Lists have a place for each position, and null where the item has the other modality, or is missing. If two texts or two
images have one position, or positions are far apart, lists have a place for each item instead, and the list
`touchfs_positions` has the position of each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from touchfs.core.extent import Buffer
from touchfs.format.magic import MAGIC_SIZE, extension
from touchfs.interleaved.layout.columns import IMAGE
from touchfs.interleaved.layout.document import POSITIONS_FIELD
from touchfs.interleaved.layout.media_types import extension_of

# Lists may have so many nulls more than there are items. The largest position would make lists of 2 billion.
_GAPS_MAX = 10_000


class SampleItem(NamedTuple):
    """A text or an image. An image without bytes has `data` None."""

    position: int
    modality: str
    content_type: str | None
    text: str | None
    data: Buffer | None


def sample_members(
    sample_id: str, key: str, items: Sequence[SampleItem], list_fields: tuple[str, str], fields: dict[str, Any]
) -> dict[str, Buffer]:
    """Return the members of a sample by what follows `key` and a dot in their names: images, and the JSON last.

    `items` are in the order of their positions, and `list_fields` name the lists of texts and of images. `fields` are
    the others of the JSON. A text that is null becomes an empty one. An image without bytes is named, and no member.
    """
    members: dict[str, Buffer] = {}
    values = [_add_image(members, key, item) if item.modality == IMAGE else item.text or "" for item in items]
    texts_field, images_field = list_fields
    document = {"sample_id": sample_id, texts_field: [], images_field: [], **fields}
    positions = [item.position for item in items]
    if _needs_positions(items):
        document[POSITIONS_FIELD] = positions
        places: Sequence[int] = range(len(items))
    else:
        places = positions
    length = max(places, default=-1) + 1
    texts: list[str | None] = [None] * length
    images: list[str | None] = [None] * length
    for place, item, value in zip(places, items, values, strict=True):
        (images if item.modality == IMAGE else texts)[place] = value
    document[texts_field], document[images_field] = texts, images
    members["json"] = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return members


def _needs_positions(items: Sequence[SampleItem]) -> bool:
    places = Counter((item.modality, item.position) for item in items)
    return len(places) < len(items) or any(item.position > len(items) + _GAPS_MAX for item in items)


def _add_image(members: dict[str, Buffer], key: str, item: SampleItem) -> str:
    """Add an image, and return the name of its member. Several images of one position are numbered."""
    kind = image_extension(item.content_type, item.data)
    name, number = f"{item.position}.{kind}", 1
    while name in members:
        number += 1
        name = f"{item.position}.{number}.{kind}"
    if item.data is not None:
        members[name] = item.data
    return f"{key}.{name}"


def image_extension(content_type: str | None, data: Buffer | None) -> str:
    """Return the extension, without a dot, of an image: that of its content type, or what its first bytes say."""
    name = extension_of(content_type)
    if name == "bin" and data is not None:
        found = extension(memoryview(data)[:MAGIC_SIZE])
        return "tiff" if found == "tif" else found
    return name
