"""A video that an example names or contains: its content, and the label under which the cache lists it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from touchfs.core.errors import ArgumentTypeError
from touchfs.core.extent import Content, Extent, Memory
from touchfs.features import Video
from touchfs.features.base import unwrap_scalar
from touchfs.source.data import DATA

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class VideoInput:
    """A video to be encoded. `path` is a label: that of the file, or a name made of the hash of the bytes.

    `metadata` are the other values of the example that JSON has.
    """

    content: Content
    key: Scalar
    path: str
    checksum: str | None
    metadata: dict[str, Any]


def video_input(key: Any, example: Mapping[str, Any], column: str, feature: Video) -> VideoInput:
    """The video of an example: a path, bytes, or a mapping with `path` or `bytes`, `checksum` and `extension`.

    Raises MissingFileError, ArgumentTypeError, and ArgumentValueError for an extension that is not allowed.
    """
    value, checksum, extension = example.get(column), None, None
    if isinstance(value, Mapping):
        checksum, extension = value.get("checksum"), value.get("extension")
        value = value.get("bytes") if value.get("path") is None else value["path"]
        if value is None:
            raise ArgumentTypeError("Video frame values must contain 'path' or 'bytes'.")
    if isinstance(value, str | Path):
        path = str(value)
        file = DATA.open(str(feature.check_path(value)))
        content: Content = Extent(file, 0, file.size)
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        digest = hashlib.sha256(data).hexdigest()
        path = digest + feature.check_extension(str(extension or feature.allowed_extensions[0]))
        checksum = checksum or digest
        content = Memory(data)
    else:
        raise ArgumentTypeError("Video frame values must be path-like or bytes-like.")
    key = unwrap_scalar(key)
    metadata = {name: unwrap_scalar(other) for name, other in example.items() if name != column}
    return VideoInput(
        content,
        key if isinstance(key, Scalar) else str(key),
        path,
        None if checksum is None else str(checksum),
        {name: other for name, other in metadata.items() if _is_json(other)},
    )


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_json(other) for name, other in value.items())
    return all(map(_is_json, value)) if isinstance(value, list | tuple) else isinstance(value, Scalar)
