"""The form of files beside a table that its cells name: the videos of a cache, in `_assets/video/`."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from touchfs.core.errors import FormatError, NotFoundError, SourceError
from touchfs.core.extent import Content, Extent
from touchfs.form.base import Form
from touchfs.limits import Limits
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.store import StoredFile
from touchfs.tables.rows.extensions import UNKNOWN, extension_of
from touchfs.tables.rows.rows import NO_FILE, ColumnFiles

ASSETS = os.path.join("_assets", "video")
# Size and mtime of the file; its name follows
_FILE = struct.Struct("<qq")
# Files that are known by their name and fingerprint. Whether one is open, the pool of descriptors decides.
_FILES_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Asset(Form):
    """`asset`: a whole file in `_assets/video/` beside the source. `detail` is of `asset_detail`.

    Neither its name nor links lead out of that directory.
    """

    def __str__(self) -> str:
        return "asset"

    def size(self, length: int, detail: bytes) -> int:
        return _parse(detail)[1].size

    @property
    def is_stored(self) -> bool:
        return True

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return self.stored(extent, detail, limits)

    def stored(self, extent: Extent, detail: bytes, limits: Limits) -> Extent:
        name, fingerprint = _parse(detail)
        return Extent(open_asset(cast(StoredFile, extent.source).path, name, fingerprint), 0, fingerprint.size)


def asset_detail(name: str, fingerprint: Fingerprint) -> bytes:
    return _FILE.pack(fingerprint.size, fingerprint.mtime_ns) + os.fsencode(name)


@lru_cache(_FILES_KEPT)
def open_asset(table: str, name: str, fingerprint: Fingerprint | None = None) -> StoredFile:
    """The file of this name beside the table at a path. Raises FormatError for more than a name; accesses nothing."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise FormatError(f"{name!r} is not the bare name of a video")
    return DATA.open_beneath(os.path.join(os.path.dirname(table), ASSETS), name, fingerprint)


def _parse(detail: bytes) -> tuple[str, Fingerprint]:
    if len(detail) <= _FILE.size:
        raise FormatError("the catalog's description of a video is damaged: index with --force")
    size, mtime_ns = _FILE.unpack_from(detail)
    if size < 0:
        raise FormatError("the catalog's description of a video is damaged: index with --force")
    return os.fsdecode(detail[_FILE.size :]), Fingerprint(size, mtime_ns)


def with_videos(
    files: ColumnFiles,
    place: str,
    names: Sequence[str | None],
    modes: Sequence[str | None],
    problem: Callable[[int, str], None],
    kind: Callable[[str], int],
) -> ColumnFiles:
    """The files of a column, and those of its videos beside the file `place`, which have a name and the mode `path`.

    `problem` gets a row and why its video cannot be shown. `kind` returns the number of the kind with an extension.
    """
    details = list(files.details or [b""] * len(names))
    for row, (name, mode) in enumerate(zip(names, modes, strict=True)):
        if mode != "path" or name is None or files.kind[row] != NO_FILE:
            continue
        try:
            with closing(open_asset(place, name)) as file:
                file.open()
                fingerprint = file.fingerprint
            if fingerprint is None:
                raise SourceError("cannot be distinguished from later versions")
        except (FormatError, NotFoundError, SourceError) as error:
            problem(row, f"its video {name!r}: {error.message}")
            continue
        files.kind[row] = kind(extension_of(os.path.splitext(name)[1]) or UNKNOWN)
        files.size[row] = fingerprint.size
        details[row] = asset_detail(name, fingerprint)
    return replace(files, details=details)
