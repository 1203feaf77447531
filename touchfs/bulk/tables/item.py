"""An item that becomes a row: a key, the members of its JSON, and its files by extension, which are read on demand."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from touchfs.core.errors import FormatError, TouchfsError
from touchfs.core.extent import Buffer
from touchfs.features import Array3D, Array4D, ClassLabel, Features, FeatureType, File, Image, Sequence, Value, Video
from touchfs.media.extensions import coding_of, is_image

# The column that gets the key of an item.
KEY = "__key__"
# Features that store files. Their values in JSON are paths, if the item comes from a list of the user's.
_MEDIA = (Image, Video, File)
_Read = Callable[[], Buffer | Path]


class Item(NamedTuple):
    """`values` are the members of the item's JSON. `files` returns the bytes of each file, or its path: by
    its extension, or the name of its column.

    `place` returns the path of a file that `values` names, or its bytes if it is in another store. None if the values
    are data that may not name files.
    """

    key: str
    values: Mapping[str, Any]
    files: Mapping[str, _Read]
    place: Callable[[str], Buffer | Path] | None = None


def row_of(item: Item, features: Features) -> dict[str, Any]:
    """The values of an item for `encode_example`. A column that it does not have is None.

    A column gets the key if it is named `__key__`, the file with the extension that it is named after, the member of
    the JSON with its name, or the only file that it can store. Raises FormatError that names the column.
    """
    row = {}
    for name, feature in features.items():
        try:
            value = _value(item, name, feature)
            row[name] = feature.encode(value) if isinstance(feature, ClassLabel) else value
        except TouchfsError as error:
            raise FormatError(f"column {name!r}: {error.message}") from error
    return row


def _value(item: Item, name: str, feature: FeatureType) -> Any:
    if name == KEY:
        return item.key
    if name in item.files:
        return _parsed(feature, name, item.files[name]())
    if name in item.values:
        value = item.values[name]
        if isinstance(feature, _MEDIA) and isinstance(value, str):
            if item.place is None:
                raise FormatError("the data names a file, and only lists of yours may: put the file into the sample")
            return _parsed(feature, os.path.splitext(value)[1][1:], item.place(value))
        return value
    if isinstance(feature, _MEDIA):
        fitting = [extension for extension in item.files if fits(feature, extension)]
        if len(fitting) > 1:
            found = ", ".join(fitting)
            raise FormatError(f"there are several files for it ({found}): name the column after an extension")
        if fitting:
            return _parsed(feature, fitting[0], item.files[fitting[0]]())
    return None


def fits(feature: FeatureType, extension: str) -> bool:
    """True if a feature that stores files can store those with an extension."""
    if isinstance(feature, Video):
        return f".{coding_of(extension)}" in feature.allowed_extensions
    if isinstance(feature, File):
        return extension == feature.extension
    return is_image(extension)


def _parsed(feature: FeatureType, extension: str, data: Buffer | Path) -> Any:
    if isinstance(feature, Video):
        suffix = f".{coding_of(extension)}"
        return data if isinstance(data, Path) else {"bytes": bytes(data), "extension": suffix}
    if isinstance(data, Path) and isinstance(feature, Image | File):
        return data
    stored = data.read_bytes() if isinstance(data, Path) else bytes(data)
    if isinstance(feature, Array3D | Array4D):
        return _array(stored)
    if isinstance(feature, Image | File) or (isinstance(feature, Value) and feature.dtype == "binary"):
        return stored
    try:
        text = stored.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f".{extension} is not UTF-8: {error.reason}", offset=error.start) from error
    if isinstance(feature, Value) and feature.dtype == "string":
        return text
    if isinstance(feature, ClassLabel) and not text.strip().isdecimal():
        return text.strip()
    if isinstance(feature, ClassLabel | Sequence | Value):
        return _json(extension, text)
    return stored


def _array(stored: bytes) -> Any:
    try:
        return np.load(io.BytesIO(stored), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FormatError(f"it is not a .npy file: {error}") from error


def _json(extension: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f".{extension} is not JSON: {error}") from error
