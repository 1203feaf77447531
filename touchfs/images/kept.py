"""Images that mounts use: in the directory of the index, under a name made of all that they show."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from touchfs.core.errors import FormatError, UntrustedError, map_os_errors
from touchfs.core.names import hex_digest
from touchfs.core.progress import Progress, unshown
from touchfs.format.erofs.superblock import VERSION, parse_image
from touchfs.images.image import write_image
from touchfs.images.owners import ImageOwners
from touchfs.images.plan import ImageLeftOut, ImagePlan
from touchfs.indexing.place import make_place
from touchfs.posix.atomic import turn
from touchfs.posix.trust import atomic_own_file, open_trusted
from touchfs.source.mapped import map_file
from touchfs.verify.journal import journal_stem

SUFFIX = ".erofs"
_NOTE_SUFFIX = ".erofs.json"
_NOTE_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class KeptImage:
    """An open image, and what its note says: how many files it has, and what is left out."""

    path: str
    descriptor: int
    files: int
    left_out: ImageLeftOut


def find_or_make(plan: ImagePlan, owners: ImageOwners, *, by_key: bool, progress: Progress = unshown) -> KeptImage:
    """The image of a plan, which is written if it is not there, or damaged.

    Raises UntrustedError for an image that somebody else may have written, and as `write_image` and `turn`.
    """
    dataset = plan.dataset
    place = os.path.dirname(dataset.shards[0].catalog)
    make_place(place)
    stem = os.path.join(place, f"{journal_stem(dataset.source)}.{_version(plan, owners, by_key=by_key)}")
    path = stem + SUFFIX
    with turn(path):
        with suppress(FileNotFoundError, FormatError):
            return _open(path, stem)
        with atomic_own_file(path) as file:
            written = write_image(plan, owners, file, by_key=by_key, progress=progress)
        note = {"files": written.files, "left_out": plan.left_out.files, "damaged": plan.left_out.damaged}
        with atomic_own_file(stem + _NOTE_SUFFIX) as file:
            file.write(json.dumps(note).encode())
        try:
            return _open(path, stem)
        except FormatError as error:
            raise error.at(path) from None


def _version(plan: ImagePlan, owners: ImageOwners, *, by_key: bool) -> str:
    facts = [str(VERSION), str(by_key), repr(owners)]
    facts += [
        f"{shard.directory}{shard.name}\0{shard.path}\0{shard.identity}\0{shard.report}"
        for shard in plan.dataset.shards
    ]
    facts += [f"{device.full_path}\0{device.fingerprint.hashed}" for device in plan.devices]
    return hex_digest("\0".join(facts).encode(errors="surrogateescape"))


def _open(path: str, stem: str) -> KeptImage:
    """Open an image that is whole, and ours or root's. Raises FormatError, UntrustedError or FileNotFoundError."""
    with open(open_trusted(stem + _NOTE_SUFFIX), "rb") as file:
        files, left_out = _parse_note(file.read(_NOTE_MAX))
    descriptor = open_trusted(path)
    try:
        if os.fstat(descriptor).st_uid not in (0, os.geteuid()):
            raise UntrustedError("belongs to another user: remove it", path=path)
        with map_os_errors(path):
            parse_image(map_file(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return KeptImage(path, descriptor, files, left_out)


def _parse_note(data: bytes) -> tuple[int, ImageLeftOut]:
    try:
        note: Any = json.loads(data)
        files, counts, damaged = note["files"], dict(note["left_out"]), dict(note["damaged"])
        texts = [*counts, *damaged, *damaged.values()]
        if not all(isinstance(each, str) for each in texts) or {*map(type, (files, *counts.values()))} != {int}:
            raise TypeError("a value is of another type")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError("the note of an image is damaged") from error
    return files, ImageLeftOut(Counter(counts), damaged)
