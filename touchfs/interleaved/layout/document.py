"""The JSON of a sample in a WebDataset tar: its texts, its images and the fields that are passed through.

    {"texts": ["Once", null, "upon"], "images": [null, "a.1.jpg", null], "language": "en"}

The position of an item is its index in its list; null means that the item there has the other modality, or that it
has none. What is not a list is no list of items, and is ignored. If two texts or two images have one position, our
writer adds the list `touchfs_positions`: a position for each index of the lists.

Source: nemo_curator/stages/interleaved/io/readers/webdataset.py of NeMo Curator 1.4.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from touchfs.core.errors import FieldTypeError, FormatError
from touchfs.core.extent import Buffer
from touchfs.core.json_text import parse_json
from touchfs.interleaved.layout.columns import RESERVED_COLUMNS
from touchfs.limits import LIMITS, too_long

POSITIONS_FIELD = "touchfs_positions"
_POSITION_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SampleFields:
    """Names of the fields with a meaning of their own.

    `per_image_fields` and `per_text_fields` are lists with a value for each image or text that is not null.
    """

    texts_field: str = "texts"
    images_field: str = "images"
    image_member_field: str | None = None
    sample_id_field: str | None = None
    per_image_fields: tuple[str, ...] = ()
    per_text_fields: tuple[str, ...] = ()

    @property
    def reserved(self) -> frozenset[str]:
        """The names of fields that are never passed through."""
        named = (self.texts_field, self.images_field, self.image_member_field, self.sample_id_field)
        names = (name for name in named if name is not None)
        return frozenset(names).union(RESERVED_COLUMNS, (POSITIONS_FIELD,), self.per_image_fields, self.per_text_fields)


@dataclass(frozen=True, slots=True)
class Document:
    """A sample as its JSON gives it. `texts` and `images` hold `(position, value)` of what is not null; the value of an
    image is a token of any type, which names a member of the tar or does not. `per_image` and `per_text` have the
    values of those fields that the JSON has, one for each item in order; `passthrough` has all other fields.
    """

    sample_id: str | None
    texts: list[tuple[int, str]]
    images: list[tuple[int, Any]]
    image_member: str | None
    per_image: dict[str, list[Any]]
    per_text: dict[str, list[Any]]
    passthrough: dict[str, Any]


def parse_document(data: Buffer, fields: SampleFields, limit: int = LIMITS.json) -> Document:
    """Return the sample in the bytes of a JSON member.

    Texts and names may have halves of surrogate pairs, as JSON may. Raises FormatError if the bytes are over `limit` or
    are not a JSON object in UTF-8, and FieldTypeError, which is also a TypeError, if a field of values for each item is
    not a list.
    """
    sample = _parse_object(data, limit)
    sample_id = sample.get(fields.sample_id_field) if fields.sample_id_field else None
    member = sample.get(fields.image_member_field) if fields.image_member_field else None
    return Document(
        sample_id=None if sample_id is None else str(sample_id),
        texts=[(position, str(text)) for position, text in _items(sample, fields.texts_field)],
        images=_items(sample, fields.images_field),
        image_member=member if isinstance(member, str) else None,
        per_image=_lists(sample, fields.per_image_fields),
        per_text=_lists(sample, fields.per_text_fields),
        passthrough={name: value for name, value in sample.items() if name not in fields.reserved},
    )


def _parse_object(data: Buffer, limit: int) -> dict[str, Any]:
    if len(data) > limit:
        raise FormatError(too_long("the JSON of the sample", limit))
    try:
        sample = parse_json(bytes(data), "utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError("the JSON of the sample is not UTF-8", offset=error.start) from error
    except json.JSONDecodeError as error:
        raise FormatError(f"the sample is not JSON: {error.msg}", offset=error.pos) from error
    except (RecursionError, ValueError) as error:
        raise FormatError("the sample is not JSON that can be read: nested too deep, or a number too long") from error
    if not isinstance(sample, dict):
        raise FormatError("the JSON of the sample is not an object")
    return sample


def _items(sample: dict[str, Any], field: str) -> list[tuple[int, Any]]:
    values = sample.get(field)
    if not isinstance(values, list):
        return []
    positions = sample.get(POSITIONS_FIELD, range(len(values)))
    if POSITIONS_FIELD in sample and not _are_positions(positions, len(values)):
        raise FormatError(f"{POSITIONS_FIELD!r} is not a list of {len(values)} positions, which {field!r} has")
    return [(position, value) for position, value in zip(positions, values, strict=True) if value is not None]


def _are_positions(positions: Any, count: int) -> bool:
    is_list = isinstance(positions, list) and len(positions) == count
    return is_list and all(type(each) is int and 0 <= each <= _POSITION_MAX for each in positions)


def _lists(sample: dict[str, Any], names: tuple[str, ...]) -> dict[str, list[Any]]:
    for name in names:
        if name in sample and not isinstance(sample[name], list):
            found = type(sample[name]).__name__
            raise FieldTypeError(f"the field {name!r} has values for each item, so it must be a list, not {found}")
    return {name: sample[name] for name in names if name in sample}
