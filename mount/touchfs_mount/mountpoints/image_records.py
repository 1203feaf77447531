"""What is known of mounts of images, which have no daemon to ask: a file of root's for each, under the device's number.

A number is used again after a mount has ended, however it did. So a record counts only while the file system there has
the id that it had, which is made of the image's checksum.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from touchfs.core.errors import TouchfsError, map_os_errors
from touchfs.posix.mounts import Mount, mounts, reached
from touchfs.posix.trust import atomic_own_file, open_trusted
from touchfs.registry.silent import answers_in_time
from touchfs.source.fingerprint import Fingerprint, fingerprint_at
from touchfs_mount.mountpoints.erofs import KIND

# Not below /run/touchfs, where `control_place` removes what is empty.
_DIRECTORY = "/run/touchfs-images"
_SUFFIX = ".json"
_RECORD_MAX = 1 << 28
# How long the file system of a tar may take to say what is there.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """A mounted image: the id of its file system, the dataset, the image, the time of the mount, and how many shards
    and files it shows. `devices` has path, size, mtime in ns and inode of each tar. `is_created` is true if the mount
    point was made for it.
    """

    file_system: int
    source: str
    image: str
    since: str
    shards: int
    files: int
    devices: list[tuple[str, int, int, int]]
    is_created: bool

    def look(self) -> tuple[list[str], list[str]]:
        """The paths of tars that are not what they were, whose bytes may be wrong or missing; and those on a file
        system that does not answer. Raises SourceError if no process can be started to look at them.
        """
        found = answers_in_time((path for path, *_ in self.devices), _PATIENCE_SECONDS, fingerprint_at)
        changed = []
        for path, size, mtime_ns, inode in self.devices:
            now = found.get(path)
            if path in found and (now is None or not Fingerprint(size, mtime_ns, inode).matches(now)):
                changed.append(path)
        return changed, [path for path, *_ in self.devices if path not in found]


def write(device: str, record: ImageRecord) -> None:
    """Write the record of a mount whose device has this number. Raises SourceError."""
    with map_os_errors(_DIRECTORY, "cannot be created"), suppress(FileExistsError):
        os.mkdir(_DIRECTORY, 0o755)
        os.chmod(_DIRECTORY, 0o755)  # whatever the umask: `touchfs status` of others reads it
    with atomic_own_file(_path(device)) as file:
        file.write(json.dumps(asdict(record)).encode())
        os.fchmod(file.fileno(), 0o644)


def remove(device: str) -> None:
    """Remove the record of a mount that has ended."""
    with suppress(OSError):
        os.unlink(_path(device))


def clean() -> None:
    """Remove the records of mounts that have ended in this mount namespace or with another one."""
    with suppress(OSError):
        names = os.listdir(_DIRECTORY)
        there = {each.device for each in mounts() if each.kind == KIND}  # after: a record is written by what is mounted
        for name in names:
            if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX) not in there:
                os.unlink(os.path.join(_DIRECTORY, name))


def find(mounted: Mount) -> ImageRecord | None:
    """The record of a mount; None if it is not one of ours."""
    if mounted.kind != KIND or mounted.root != "/":
        return None
    with suppress(OSError, TouchfsError, ValueError, TypeError, RecursionError):
        with open(open_trusted(_path(mounted.device)), "rb") as file:
            record = _parse(json.loads(file.read(_RECORD_MAX)))
        if record.file_system == os.statvfs(mounted.point).f_fsid:  # EROFS answers at once
            return record
    return None


def image_at(path: str) -> tuple[Mount, ImageRecord] | None:
    return next(listed(path), None)


def listed(path: str | None = None) -> Iterator[tuple[Mount, ImageRecord]]:
    """The mounted images that a program reaches, or that at a path."""
    there = list(mounts())
    for each in there:
        if path in (None, each.point) and reached(each.point, there) == each and (record := find(each)) is not None:
            yield each, record


def _path(device: str) -> str:
    return os.path.join(_DIRECTORY, device + _SUFFIX)


def _parse(value: Any) -> ImageRecord:
    types = {"file_system": int, "shards": int, "files": int, "is_created": bool, "devices": list}
    known = {each.name for each in fields(ImageRecord)}
    if not isinstance(value, dict) or value.keys() != known:
        raise TypeError("not a record")
    if not all(type(value[name]) is types.get(name, str) for name in known):
        raise TypeError("a value is of another type")
    devices = [(str(path), int(size), int(mtime), int(inode)) for path, size, mtime, inode in value["devices"]]
    return ImageRecord(**{**value, "devices": devices})
