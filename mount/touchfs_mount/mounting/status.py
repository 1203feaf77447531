"""The mounts of touchfs on this machine: which there are, and what each says of itself.

A mount may be dead, or hang. So each is asked by a process of its own, with a limit on time: a process that waits for a
mount may not end even when it is killed. Every command that reads a control file of a mount does so here.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from touchfs.errors import MountError
from touchfs.posix.mounts import Mount, mounts
from touchfs_mount.mounting.mountpoint import FILE_SYSTEM, mounted_at

# A worker that is slow, or that was just killed, answers within this time, also on a busy machine.
ANSWER_SECONDS = 5.0
# Prints a file, or exits with the number of the error. Another user's mount might send bytes without end.
_READER = """
import sys
try:
    sys.stdout.buffer.write(open(sys.argv[1], "rb").read(1 << 26))
except OSError as error:
    sys.exit(error.errno)
"""

# The kinds of health that somebody must do something about. A mount of another user may be well.
PROBLEMS = {
    "dead": "dead: its daemon is gone; `touchfs umount --lazy` removes it",
    "does not answer": "does not answer; `touchfs umount --abort` ends it",
}


@dataclass(frozen=True, slots=True)
class MountStatus:
    """One mount. `health` is "answers", "does not answer", "dead" or "no permission".

    `read_ahead_kb` is the kernel's read-ahead. `workers` has the process ids of its workers, if they run in this pid
    namespace. `info` is `.touchfs/info`, and empty unless the mount answers.
    """

    mountpoint: str
    source: str
    health: str
    read_ahead_kb: int | None
    workers: tuple[int, ...] = ()
    info: dict[str, Any] = field(default_factory=dict)


def list_mounts(path: str | None = None, wait_seconds: float = ANSWER_SECONDS) -> list[MountStatus]:
    """All mounts of touchfs in this mount namespace, or those at a path, in the order of mountinfo. Returns after about
    `wait_seconds`.
    """
    found = [mounted for mounted in mounts() if mounted.kind == FILE_SYSTEM and path in (None, mounted.point)]
    asked = [_ask(mounted.point, "info") for mounted in found]
    with ThreadPoolExecutor(max(1, len(asked))) as threads:  # one that hangs takes no time from the others
        answers = list(threads.map(partial(_answer, seconds=wait_seconds), asked))
    return [_status(mounted, *answer) for mounted, answer in zip(found, answers, strict=True)]


def read_control_file(path: str, name: str, wait_seconds: float = ANSWER_SECONDS) -> bytes:
    """The text of `.touchfs/NAME` of the mount at a path. Raises MountError if it does not answer in `wait_seconds`,
    and for any other error.
    """
    error, text = _answer(_ask(path, name), wait_seconds)
    if not error:
        return text
    mounted = mounted_at(path)
    if mounted is None or mounted.kind != FILE_SYSTEM:
        raise MountError("it was unmounted", path=path)
    health = _health(error)
    if health == "no permission" and (user := other_owner(mounted)):
        raise MountError(f"this is the mount of {user}: run the command as {user}", path=path)
    if error != errno.ETIMEDOUT and health != "dead":
        raise MountError(f"its {name} cannot be read: {os.strerror(error)}", path=path)
    raise MountError(PROBLEMS[health], path=path)


def other_owner(mounted: Mount) -> str | None:
    """The name of the user who made a FUSE mount, if it is not us. By default nobody else, not even root, sees it."""
    number = int(mounted.options.partition("user_id=")[2].partition(",")[0])
    if number == os.geteuid():
        return None
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _ask(point: str, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", "-c", _READER, os.path.join(point, ".touchfs", name)]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere, start_new_session=True)


def _answer(process: subprocess.Popen[bytes], seconds: float) -> tuple[int, bytes]:
    """The number of the error, or 0, and the text. The error is ETIMEDOUT if there is no answer in time."""
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
        case _:
            return "does not answer"


def _status(mounted: Mount, error: int, text: bytes) -> MountStatus:
    info: dict[str, Any] = {}
    try:
        info = {} if error else json.loads(text)
    except ValueError:  # whoever mounts may call it touchfs
        error = errno.EIO
    workers = _workers(info["pid"]) if info else ()
    return MountStatus(mounted.point, mounted.source, _health(error), _read_ahead(mounted.device), workers, info)


def _read_ahead(device: str) -> int | None:
    try:
        with open(f"/sys/class/bdi/{device}/read_ahead_kb", encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return None


def _workers(supervisor: int) -> tuple[int, ...]:
    """The children of the supervisor's child, the zygote. Empty if the pid is that of another program here."""
    try:
        with open(f"/proc/{supervisor}/cmdline", "rb") as file:
            if b"touchfs" not in file.read():
                return ()
    except OSError:
        return ()
    return tuple(worker for zygote in _children(supervisor) for worker in _children(zygote))


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return list(map(int, file.read().split()))
    except OSError:
        return []
