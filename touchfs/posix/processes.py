"""Processes: identify one beyond its pid, which the system uses again, wait for one, and end with the parent."""

from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # linux/prctl.h


def system() -> tuple[str, str]:
    """Return ids of the current boot and pid namespace. Within these, pid and start time identify a process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return boot, os.readlink("/proc/self/ns/pid")


def start_time(pid: int) -> str:
    """Return when a process started, in clock ticks since boot, or "ended". A zombie counts as ended."""
    fields = _stat(pid)
    return "ended" if fields[0] in "ZX" else fields[19]


def is_stopped(pid: int) -> bool:
    """True if a process does nothing until it gets SIGCONT, or a debugger lets it go on."""
    return _stat(pid)[0] in "Tt"


def is_suspended(pid: int) -> bool:
    """True if a signal has stopped a process, until it gets SIGCONT. One that a debugger holds is not suspended."""
    return _stat(pid)[0] == "T"


def _stat(pid: int) -> list[str]:
    """The fields of proc(5) from the state on; of a process that is gone, the state X alone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ["X"]


def signal_when_parent_ends(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends for any reason; with 0, none any more.

    To the kernel, the parent is the thread that started this process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """Have a thread end this process when its parent, of this pid, has ended, whatever it does then. Only on Linux.

    To signals of the kernel, the parent would be the thread that started this process, which may end before.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError):  # the parent has ended, or no descriptor is left
        descriptor = os.pidfd_open(parent)
        threading.Thread(target=_end_after, args=(parent, descriptor), name="touchfs-parent", daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _end_after(parent: int, descriptor: int) -> None:
    while os.getppid() == parent:  # it may have ended before the descriptor was opened
        select.select([descriptor], [], [], 60)
    os._exit(1)


def call_oneself(name: str) -> None:
    """Take a name, which ps and top show. Needs no descriptor, so it does not fail."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def is_readable(descriptor: int, seconds: float = 0) -> bool:
    """Wait until a descriptor is readable, or has ended; False if it is not within so many seconds.

    Not with `select.select`, which refuses numbers from 1,024 on: a mount may have more.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
