"""The mounts of touchfs on this machine: which there are, and what each says of itself.

A mount may be dead, or hang. So each is asked by a process of its own, with a limit on time: a process that waits for a
mount may not end even when it is killed. Every command that reads a control file of a mount does so here.
"""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from touchfs.core.errors import FormatError, MountError, SourceError
from touchfs.posix.mounts import Mount, mounts, reached
from touchfs.posix.threads import run_at_once
from touchfs_mount.mountpoints import control_place, image_records
from touchfs_mount.mountpoints.descriptors import serves
from touchfs_mount.mountpoints.image_records import ImageRecord
from touchfs_mount.mountpoints.mount_info import children, parse_info, zygotes
from touchfs_mount.mountpoints.mountpoint import FILE_SYSTEM, mounted_at

# A worker that is slow, or that was just killed, answers within this time, also on a busy machine.
ANSWER_SECONDS = 5.0
# Prints a control file, or of a mount without a control mount the extended attribute of its root; or exits with the
# number of the error. Another user's mount might send bytes without end, have links that lead elsewhere, or a pipe. A
# dead control mount may be of a mount that had the device's number before, or be gone by now: any mount removes it.
_READER = """
import errno, os, sys
name, point, *controls = sys.argv[1:]
try:
    os.lstat(point)
    for control in controls:
        try:
            where = os.open(control, os.O_PATH | os.O_NOFOLLOW)
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=where)
            text = open(file, "rb").read(1 << 26)
            break
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTCONN, errno.ECONNABORTED):
                raise
    else:
        text = os.getxattr(point, f"user.touchfs.{name}", follow_symlinks=False)
    sys.stdout.buffer.write(text)
except OSError as error:
    sys.exit(error.errno)
"""

# The kinds of health that somebody must do something about. A mount of another user may be well.
PROBLEMS = {
    "dead": "dead: its daemon is gone; `touchfs umount --lazy` removes it",
    "does not answer": "does not answer; `touchfs umount --abort` ends it",
    "unreadable": "its .touchfs/info is missing, or none that touchfs writes",
    "tars do not answer": "the file system of its tars does not answer, so reads of it wait",
    "changed": "changed: tars under it are not what they were, so bytes may be wrong; unmount it, and mount it again",
}


@dataclass(frozen=True, slots=True)
class MountStatus:
    """One mount. `health` is "answers", "does not answer", "dead", "no permission", "hidden" if another file system is
    mounted over it, "not asked" if no process can be started for that, or "unreadable" if its `.touchfs/info` is
    missing or none of touchfs. A mount of the kernel's own, whose `image` is named, "answers", is "changed", or
    its "tars do not answer".

    `read_ahead_kb` is the kernel's read-ahead. `workers` has the process ids of its workers, if they run in this pid
    namespace and we may examine them. `info` is `.touchfs/info`, and empty unless the mount answers; of an image it has
    `since`, `shards`, `files`, and the paths of tars that have `changed`.
    """

    mountpoint: str
    source: str
    health: str
    read_ahead_kb: int | None
    workers: tuple[int, ...] = ()
    info: dict[str, Any] = field(default_factory=dict)
    image: str | None = None


def list_mounts(path: str | None = None, wait_seconds: float = ANSWER_SECONDS) -> list[MountStatus]:
    """All mounts of touchfs in this mount namespace, or those at a path, in the order of mountinfo. Returns after about
    `wait_seconds`. Bind mounts of parts of them are left out: only the root of a mount says something of it.
    """
    listed = list(mounts())
    ours = [each for each in listed if _is_whole(each) and path in (None, each.point)]
    asked = {each: _ask(each, "info") for each in ours if reached(each.point, listed) == each}
    # One that hangs takes no time from the others.
    ask = partial(_answer, seconds=wait_seconds)
    answers = dict(zip(asked, run_at_once(ask, list(asked.values()), len(asked)), strict=True))
    found = [_status(each, *answers[each]) if each in answers else _hidden(each) for each in ours]
    return [*found, *(_image_status(*each) for each in image_records.listed(path))]


def touchfs_at(path: str) -> Mount:
    """The mount of touchfs at a path, or a bind mount of a part of one. Raises MountError if none is reached there."""
    mounted = mounted_at(path)
    if mounted is None or mounted.kind != FILE_SYSTEM:
        if mounted is not None and image_records.find(mounted) is not None:
            raise MountError("this is a mount of the kernel's own, which has no daemon to ask", path=path)
        raise MountError("touchfs is not mounted here", path=path)
    return mounted


def whole_at(path: str) -> Mount:
    """The mount of touchfs at a path. Raises MountError, also for a bind mount of a part of one."""
    mounted = touchfs_at(path)
    if not _is_whole(mounted):
        whole = [each.point for each in mounts() if _is_whole(each) and each.device == mounted.device]
        of = f"the mount at {whole[0]}" if whole else f"a mount of {mounted.source} that is not to be seen here"
        raise MountError(f"only a part of {of} is mounted here", path=path)
    return mounted


def _is_whole(mounted: Mount) -> bool:
    return mounted.kind == FILE_SYSTEM and mounted.root == "/"


def read_control_file(path: str, name: str, wait_seconds: float = ANSWER_SECONDS) -> bytes:
    """The text of `.touchfs/NAME` of the mount at a path. Raises MountError if it does not answer in `wait_seconds`,
    and for any other error.
    """
    mounted = mounted_at(path)
    if mounted is None or mounted.kind != FILE_SYSTEM:
        raise MountError("it was unmounted", path=path)
    error, text = _answer(_ask(mounted, name), wait_seconds)
    if not error:
        return text
    if (still := mounted_at(path)) is None or still.device != mounted.device:
        raise MountError("it was unmounted", path=path)
    health = _health(error)
    if health == "no permission" and (user := other_owner(mounted)):
        raise MountError(f"this is the mount of {user}: run the command as {user}", path=path)
    if error != errno.ETIMEDOUT and health != "dead":
        raise MountError(f"its {name} cannot be read: {os.strerror(error)}", path=path)
    raise MountError(PROBLEMS[health], path=path)


def other_owner(mounted: Mount) -> str | None:
    """The name of the user who made a FUSE mount, if it is not us. By default nobody else, not even root, sees it."""
    number = control_place.owner_of(mounted)
    if number == os.geteuid():
        return None
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _ask(mounted: Mount, name: str) -> subprocess.Popen[bytes] | int:
    """The process that asks; the number of the error if none can be started, as where Python is closed to this user."""
    controls = [each.point for each in control_place.controls_of(mounted)]
    command = [sys.executable, "-I", "-S", "-c", _READER, name, mounted.point, *controls]
    nowhere = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere, start_new_session=True)
    except OSError as error:
        return error.errno or errno.EIO


def _answer(process: subprocess.Popen[bytes] | int, seconds: float) -> tuple[int, bytes]:
    """The number of the error, or 0, and the text. The error is ETIMEDOUT if there is no answer in time."""
    if isinstance(process, int):
        return process, b""
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()  # it ends when the mount answers or is aborted: nobody waits for it
        return errno.ETIMEDOUT, b""
    return process.returncode, text


def _health(error: int) -> str:
    match error:
        case 0:
            return "answers"
        case errno.EACCES | errno.EPERM:
            return "no permission"
        case errno.ENOTCONN | errno.ECONNABORTED:
            return "dead"
        case errno.ETIMEDOUT:
            return "does not answer"
        case errno.EAGAIN | errno.ENOMEM:
            return "not asked"
        case _:
            return "unreadable"


def _status(mounted: Mount, error: int, text: bytes) -> MountStatus:
    info: dict[str, Any] = {}
    health = _health(error)
    if not error:
        try:
            info = parse_info(text)
        except FormatError:
            health = "unreadable"
    found = [child for zygote in zygotes(info["pid"], mounted.device) for child in children(zygote)] if info else []
    workers = [child for child in found if serves(child, mounted.device)]
    read_ahead = _read_ahead(mounted.device)
    return MountStatus(mounted.point, mounted.source, health, read_ahead, tuple(workers), info)


def _image_status(mounted: Mount, record: ImageRecord) -> MountStatus:
    info: dict[str, Any] = {"since": record.since, "shards": record.shards, "files": record.files, "changed": []}
    try:
        info["changed"], silent = record.look()
        health = "changed" if info["changed"] else "tars do not answer" if silent else "answers"
    except SourceError:
        health = "not asked"
    return MountStatus(mounted.point, record.source, health, _read_ahead(mounted.device), info=info, image=record.image)


def _hidden(mounted: Mount) -> MountStatus:
    return MountStatus(mounted.point, mounted.source, "hidden", _read_ahead(mounted.device))


def _read_ahead(device: str) -> int | None:
    try:
        with open(f"/sys/class/bdi/{device}/read_ahead_kb", encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return None
