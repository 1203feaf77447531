"""The mounts of touchfs on this machine: which there are, and what each says of itself.

A mount may be dead, or hang. So each is asked by a process of its own, with a limit on time: a process that waits for a
mount may not end even when it is killed.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from touchfs.posix.mounts import Mount, mounts
from touchfs_mount.mounting.mountpoint import FILE_SYSTEM

# Prints a file, or exits with the number of the error.
_READER = """
import sys
try:
    sys.stdout.buffer.write(open(sys.argv[1], "rb").read())
except OSError as error:
    sys.exit(error.errno)
"""


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


def list_mounts(wait_seconds: float) -> list[MountStatus]:
    """All mounts of touchfs in this mount namespace, in the order of mountinfo. Returns after about `wait_seconds`."""
    found = [mounted for mounted in mounts() if mounted.kind == FILE_SYSTEM]
    asked = [_ask(mounted.point) for mounted in found]
    deadline = time.monotonic() + wait_seconds
    answers = [_answer(process, max(0.0, deadline - time.monotonic())) for process in asked]
    return [_status(mounted, *answer) for mounted, answer in zip(found, answers, strict=True)]


def _ask(point: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", "-c", _READER, os.path.join(point, ".touchfs", "info")]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=nowhere, stdout=subprocess.PIPE, stderr=nowhere, start_new_session=True)


def _answer(process: subprocess.Popen[bytes], seconds: float) -> tuple[str, dict[str, Any]]:
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()  # it ends when the mount answers or is aborted: nobody waits for it
        return "does not answer", {}
    match process.returncode:
        case 0:
            info: dict[str, Any] = json.loads(text)
            return "answers", info
        case errno.EACCES | errno.EPERM:
            return "no permission", {}
        case errno.ENOTCONN | errno.ECONNABORTED:
            return "dead", {}
        case _:
            return "does not answer", {}


def _status(mounted: Mount, health: str, info: dict[str, Any]) -> MountStatus:
    workers = _workers(info["pid"]) if info else ()
    return MountStatus(mounted.point, mounted.source, health, _read_ahead(mounted.device), workers, info)


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
