"""What containers share whose shards are single files, also compressed ones and those beside Kaldi's lists."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from touchfs.core.errors import FormatError, NotFoundError, SourceError
from touchfs.core.location import beside
from touchfs.shard.options import Decompress
from touchfs.source.data import DATA
from touchfs.source.decompressed import decompressed, find
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.scratch.file import ScratchFile
from touchfs.source.store import FileType, Store, StoredFile

# Kaldi's lists beside a shard (`touchfs.containers.lines.kaldi`), and the one that is a shard
# (`touchfs.containers.lines.wav_scp`).
SEGMENTS = "segments"
LISTS = (SEGMENTS, "text", "utt2spk")
RECORDINGS = "wav.scp"
# NeMo's manifest beside tars, and the names of these (`touchfs.containers.lines.tarred`). For no other tar it is looked
# for: of a store that takes requests.
MANIFEST = "tarred_audio_manifest.json"
TAR_OF_NEMO = re.compile(r"audio_([0-9]+)\.tar")
# All that Kaldi has in the directory of such a list.
OTHER_LISTS = frozenset((*LISTS, "reco2dur", "spk2gender", "spk2utt", "utt2dur"))


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """The fingerprint of the file by its name. Raises NotFoundError or SourceError."""
    return {os.path.basename(path): store.stat(path).fingerprint}


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """Open a file in the directory of the shard at `path`. Raises FormatError if it is not a file of the shard."""
    return DATA.open(beside(path, name), fingerprint_of(path, name, files))


class SingleFile:
    """The open file of a shard that is one file, which is called `name` in its `files`."""

    def __init__(self, path: str, name: str, files: Files) -> None:
        self.path = path
        self.files = files
        self._name = name
        self.size = files[name].size
        self._file = open_source(path, name, files)

    def close(self) -> None:
        self._file.close()


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


def manifest_fingerprint(path: str, store: Store) -> dict[str, Fingerprint]:
    """The fingerprint by name of the manifest beside a tar of NeMo's at `path`; empty if there is none."""
    if not TAR_OF_NEMO.fullmatch(os.path.basename(path)):
        return {}
    with suppress(NotFoundError, SourceError):
        status = store.stat(beside(path, MANIFEST))
        if status.type is FileType.FILE:
            return {MANIFEST: status.fingerprint}
    return {}


def without_lists(files: Files) -> Files:
    """The files of a shard without the lists beside it."""
    beside = LISTS if SEGMENTS in files else (MANIFEST,) if len(files) > 1 and MANIFEST in files else ()
    return {name: file for name, file in files.items() if name not in beside} if beside else files


def open_decompressed(path: str, fingerprint: Fingerprint, when: Decompress) -> ScratchFile:
    """The decompressed form of a file: made if `when` is NOW, else only looked up.

    Raises SourceError if it is missing.
    """
    if when is Decompress.NOW:
        return decompressed(path, fingerprint)
    form = find(path, fingerprint)
    if form is None:
        raise SourceError("is compressed, and not decompressed in the scratch store", path=path)
    return form
