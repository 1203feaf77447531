"""Functions shared by containers whose shards are a single file."""

from __future__ import annotations

import os
from collections.abc import Mapping

from touchfs.errors import FormatError, NotFoundError, SourceError
from touchfs.source.local import FileIdentity, LocalFile


def fingerprint(path: str) -> dict[str, FileIdentity]:
    """The identity of the file by its name. Raises NotFoundError or SourceError."""
    try:
        return {os.path.basename(path): FileIdentity.of(os.stat(path))}
    except FileNotFoundError:
        raise NotFoundError("no such shard", path=path) from None
    except OSError as error:
        raise SourceError(error.strerror or str(error), path=path) from error


def open_source(path: str, name: str, files: Mapping[str, FileIdentity]) -> LocalFile:
    """Open a file in the directory of the shard at `path`. Raises FormatError if it is not a file of the shard."""
    return LocalFile(os.path.join(os.path.dirname(path), name), identity_of(path, name, files))


def identity_of(path: str, name: str, files: Mapping[str, FileIdentity]) -> FileIdentity:
    """The expected identity of a file of the shard at `path`. Raises FormatError if it is not a file of the shard."""
    try:
        return files[name]
    except KeyError:
        raise FormatError(f"its index names {name!r}, which is not a file of this shard", path=path) from None
