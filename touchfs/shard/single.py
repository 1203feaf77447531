"""Functions shared by containers whose shards are a single file, also if Kaldi's lists are beside it."""

from __future__ import annotations

import os
from contextlib import suppress

from touchfs.errors import FormatError, NotFoundError, SourceError
from touchfs.posix.paths import beside
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import FileType, Store, StoredFile

# Kaldi's lists beside a shard (`touchfs.shard.kaldi`), and the one that is a shard (`touchfs.shard.lists.wav_scp`).
SEGMENTS = "segments"
LISTS = (SEGMENTS, "text", "utt2spk")
RECORDINGS = "wav.scp"


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """The fingerprint of the file by its name. Raises NotFoundError or SourceError."""
    return {os.path.basename(path): store.stat(path).fingerprint}


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """Open a file in the directory of the shard at `path`. Raises FormatError if it is not a file of the shard."""
    return DATA.open(beside(path, name), fingerprint_of(path, name, files))


def fingerprint_of(path: str, name: str, files: Files) -> Fingerprint:
    """The fingerprint of a file of the shard at `path`. Raises FormatError if it is not a file of the shard."""
    try:
        return files[name]
    except KeyError:
        raise FormatError(f"its index names {name!r}, which is not a file of this shard", path=path) from None


def list_fingerprints(path: str, store: Store) -> dict[str, Fingerprint]:
    """Fingerprints by name of the lists beside the shard at `path`; empty unless `segments` can be looked at."""
    found: dict[str, Fingerprint] = {}
    for name in LISTS:
        with suppress(NotFoundError, SourceError):
            status = store.stat(beside(path, name))
            if status.type is FileType.FILE:
                found[name] = status.fingerprint
        if SEGMENTS not in found:
            break
    return found


def without_lists(files: Files) -> Files:
    """The files of a shard without the lists beside it."""
    return {name: file for name, file in files.items() if name not in LISTS} if SEGMENTS in files else files
