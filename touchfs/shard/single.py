"""Functions shared by containers whose shards are a single file."""

from __future__ import annotations

import os

from touchfs.errors import FormatError
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import Store, StoredFile


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """The fingerprint of the file by its name. Raises NotFoundError or SourceError."""
    return {os.path.basename(path): store.stat(path).fingerprint}


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """Open a file in the directory of the shard at `path`. Raises FormatError if it is not a file of the shard."""
    return DATA.open(os.path.join(os.path.dirname(path), name), fingerprint_of(path, name, files))


def fingerprint_of(path: str, name: str, files: Files) -> Fingerprint:
    """The fingerprint of a file of the shard at `path`. Raises FormatError if it is not a file of the shard."""
    try:
        return files[name]
    except KeyError:
        raise FormatError(f"its index names {name!r}, which is not a file of this shard", path=path) from None
