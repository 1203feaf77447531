"""Versions of a Lance dataset: files in `_versions`, whose names have the number. Lance is not needed to find them."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from touchfs.core.errors import ChangedError
from touchfs.core.location import Location
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.store import Store

VERSIONS = "_versions"
# A manifest is named by its version, or by that subtracted from 2^64 - 1, in 20 digits.
_MANIFEST = re.compile(r"(\d{1,20})\.manifest", re.ASCII)
_INVERTED_DIGITS, _LAST = 20, 2**64 - 1


def manifest_version(name: str) -> int | None:
    """The version whose manifest has a name; None if it is the name of another file."""
    match = _MANIFEST.fullmatch(name)
    if match is None or int(match[1]) > _LAST:
        return None
    return _LAST - int(match[1]) if len(match[1]) == _INVERTED_DIGITS else int(match[1])


def manifest_of_dataset(path: str) -> tuple[str, int] | None:
    """The dataset and the version that a manifest at a path belongs to; None for another file."""
    directory, name = os.path.split(Location.of(path).path)
    version = manifest_version(name) if os.path.basename(directory) == VERSIONS else None
    return None if version is None else (os.path.dirname(directory), version)


def manifest_names(version: int) -> tuple[str, str]:
    """The names that the manifest of a version may have."""
    return f"{_LAST - version:0{_INVERTED_DIGITS}}.manifest", f"{version}.manifest"


def manifests(path: str, store: Store = DATA) -> dict[int, str]:
    """The names of the manifests of the dataset at a path, by version. Raises NotFoundError or SourceError."""
    names = (entry.name for entry in store.list(os.path.join(path, VERSIONS)))
    return {version: name for name in names if (version := manifest_version(name)) is not None}


def check_manifest(path: str, directory: int, version: int, manifest: Fingerprint) -> None:
    """Raise ChangedError if an open directory does not have a version, or has another manifest of it."""
    for name in manifest_names(version):
        with suppress(FileNotFoundError):
            if manifest.matches(Fingerprint.of(os.stat(os.path.join(VERSIONS, name), dir_fd=directory))):
                return
            raise ChangedError("this Lance dataset was replaced by another one: open it again", path=path)
    raise gone(path, version)


def gone(path: str, version: int) -> ChangedError:
    return ChangedError(f"version {version} of this Lance dataset is gone: index again, mount again", path=path)
