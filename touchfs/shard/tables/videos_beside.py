"""Videos of a column that are files beside their table, in `_assets/`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from touchfs.errors import FormatError, NotFoundError, SourceError
from touchfs.form.tables.asset import asset_detail, open_asset
from touchfs.shard.tables.extensions import UNKNOWN, extension_of
from touchfs.shard.tables.rows import NO_FILE, ColumnFiles


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
