"""Items of a folder: each file is one. Its directory is its label, as in the image folders of torchvision and others.

    FOLDER/cat/001.jpg    key `cat/001`, label `cat`

Hidden files and directories are left out. The order is that of the paths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from touchfs.bulk.tables.item import Item, fits
from touchfs.core.errors import FormatError, NotFoundError, UsageError, map_os_errors
from touchfs.features import ClassLabel, Features, FeatureType, File, Image, Video


def folder_files(folder: str) -> list[str]:
    """Paths of the files below a folder, relative to it, sorted. Raises NotFoundError if there is none."""
    found = []

    def fail(error: OSError) -> None:
        raise error

    with map_os_errors(folder):
        for directory, directories, names in os.walk(folder, onerror=fail):
            directories[:] = [name for name in directories if not name.startswith(".")]
            found += [os.path.join(directory, name) for name in names if not name.startswith(".")]
    if not found:
        raise NotFoundError("has no files", path=folder)
    return sorted(os.path.relpath(path, folder) for path in found)


def folder_items(folder: str, files: list[str], features: Features) -> Iterator[Item]:
    """The items of the `folder_files`. The column of files gets the file, and a ClassLabel the name of its directory.

    Raises UsageError unless one column can hold the files.
    """
    columns = [name for name, feature in features.items() if isinstance(feature, Image | Video | File)]
    labels = [name for name, feature in features.items() if isinstance(feature, ClassLabel)]
    if len(columns) != 1 or len(labels) > 1:
        raise UsageError(
            "a folder has one file and one label for each row: the features need one Image, Video or File, "
            "and at most one ClassLabel"
        )
    for path in files:
        stem, label = os.path.splitext(path)[0], os.path.basename(os.path.dirname(path))
        file = partial(_file, Path(folder, path), features[columns[0]])
        yield Item(stem, dict.fromkeys(labels, label), {columns[0]: file})


def _file(path: Path, feature: FeatureType) -> Path:
    """The path, if its extension is one that the feature stores: folders have notes and lists beside their images."""
    if not fits(feature, path.suffix[1:]):
        raise FormatError(f"{path.name!r} is no file for the type {type(feature).__name__} by its extension")
    return path
