"""A daemon process whose parent waits until it is ready, and then exits with its success or its error.

The child is its own session, so it outlives the terminal. It keeps the parent's stderr, for progress bars, until
`Background.detach`, which it calls before it forks anything: from then on nothing of it holds the parent's terminal,
pipes or directory. Its outcome goes through a pipe of its own, as one JSON line. Until then the two end together.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import select
import signal
from collections.abc import Callable
from typing import IO, Any

from touchfs.errors import MountError, TouchfsError
from touchfs_mount.mounting.mountpoint import EXIT_TIMEOUT

log = logging.getLogger(__name__)

# What a child has to unmount and end, when its parent gives up: longer than the daemon's grace.
END_SECONDS = 15.0


class Background:
    """What the child has of its parent: a pipe for the one line that the parent waits for."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def detach(self, log_file: IO[Any]) -> None:
        """Let go of the parent's standard streams and directory; stderr is the log file from now on."""
        with open(os.devnull, "r+b") as nowhere:
            os.dup2(nowhere.fileno(), 0)
            os.dup2(nowhere.fileno(), 1)
        os.dup2(log_file.fileno(), 2)
        os.chdir("/")

    def ready(self, message: str) -> None:
        _end_with_the_parent(False)
        try:
            self._tell({"ready": message})
        except BrokenPipeError:
            log.warning("whoever mounted is gone: unmounting")
            os.kill(os.getpid(), signal.SIGTERM)

    def failed(self, error: TouchfsError) -> None:
        try:
            self._tell({"error": str(error), "status": getattr(error, "exit_status", 1)})
        except BrokenPipeError:
            log.error("%s", error)

    def _tell(self, outcome: dict[str, object]) -> None:
        os.write(self._pipe, json.dumps(outcome).encode() + b"\n")


def in_background(run: Callable[[Background], int], wait_seconds: float) -> str:
    """Run in a child, and return what it says when it is ready. Raises MountError with its error or at the time-out."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    # Or a Ctrl-C while it forks is lost in one of the functions that libraries have registered to be called then.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _be_the_child(run, Background(writing))
    os.close(writing)
    process = os.pidfd_open(pid)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        told = _outcome(reading, wait_seconds)
    except BaseException:  # Ctrl-C is one: whatever ends the waiting, the child must not go on alone
        os.kill(pid, signal.SIGTERM)
        select.select([process], [], [], END_SECONDS)
        raise
    finally:
        os.close(reading)
    if told is None:
        _, status = os.waitpid(pid, 0)
        raise MountError(f"the daemon ended with status {os.waitstatus_to_exitcode(status)} before it was ready")
    if "error" in told:
        select.select([process], [], [], END_SECONDS)
        raise MountError(told["error"], exit_status=told["status"])
    return str(told["ready"])


def _outcome(pipe: int, wait_seconds: float) -> dict[str, Any] | None:
    """What the child told, or None if it ended without a word."""
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([pipe], [], [], wait_seconds)[0]:
            raise MountError(f"not ready after {wait_seconds:.0f} s: given up", exit_status=EXIT_TIMEOUT)
        piece = os.read(pipe, 1 << 16)
        if not piece:
            return None
        line += piece
    told: dict[str, Any] = json.loads(line)
    return told


def _be_the_child(run: Callable[[Background], int], background: Background) -> None:
    """Never returns into the parent's code."""
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        os.setsid()
        _end_with_the_parent(True)
        _close_inherited()
        status = run(background)
    except TouchfsError as error:
        background.failed(error)
        status = getattr(error, "exit_status", 1)
    except BaseException:  # the last frame of this process: say why it ends, whatever it is
        log.critical("the daemon failed", exc_info=True)
        background.failed(MountError("the daemon failed: its log says why"))
    finally:
        logging.shutdown()
        os._exit(status)


def _end_with_the_parent(wanted: bool) -> None:
    """Whether the kernel sends us SIGTERM when the parent ends, however it does: prctl(PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM if wanted else 0, 0, 0, 0)


def _close_inherited() -> None:
    """Close what came from whoever ran us (a shell's `3>file`, a build's pipes), or they wait as long as we live.

    Python opens nothing that another program would inherit, so what can be inherited was.
    """
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the listing's own is closed by now
            if descriptor > 2 and os.get_inheritable(descriptor):
                os.close(descriptor)
