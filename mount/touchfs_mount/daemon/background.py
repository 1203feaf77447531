"""A daemon process whose parent waits until it is ready, and then exits with its success or its error.

The child has its own session, so it outlives the terminal. It keeps the parent's stderr, for progress bars, until it
calls `Background.detach`, which it does before it forks: from then on it has nothing of the parent's terminal, pipes
or directory open. It sends its outcome through a pipe, as one JSON line. Until then each ends when the other does.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
from collections.abc import Callable
from typing import IO, Any

from touchfs.core.errors import MountError, TouchfsError
from touchfs.posix.processes import is_readable, signal_when_parent_ends
from touchfs_mount.logs.logs import last_words
from touchfs_mount.mountpoints.mountpoint import EXIT_TIMEOUT

log = logging.getLogger(__name__)

# The time that a child has to unmount and exit when its parent gives up: longer than the daemon's grace period.
END_SECONDS = 15.0


class Background:
    """The child's connection to its parent: a pipe for the one line that the parent waits for."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def detach(self, log_file: IO[Any]) -> None:
        """Release the parent's standard streams and directory. From now on stderr is the log file."""
        with open(os.devnull, "r+b") as nowhere:
            os.dup2(nowhere.fileno(), 0)
            os.dup2(nowhere.fileno(), 1)
        os.dup2(log_file.fileno(), 2)
        os.chdir("/")

    def ready(self, message: str) -> None:
        """Report success. If the parent is gone, send SIGTERM to this process, which unmounts."""
        signal_when_parent_ends(0)
        try:
            self._send({"ready": message})
        except BrokenPipeError:
            log.warning("the process that ran `touchfs mount` is gone: unmounting")
            os.kill(os.getpid(), signal.SIGTERM)

    def failed(self, error: TouchfsError) -> None:
        """Report an error, with its exit status."""
        try:
            self._send({"error": str(error), "status": getattr(error, "exit_status", 1)})
        except BrokenPipeError:
            log.error("%s", error)

    def _send(self, outcome: dict[str, object]) -> None:
        os.write(self._pipe, json.dumps(outcome).encode() + b"\n")


def in_background(run: Callable[[Background], int], wait_seconds: float) -> str:
    """Run a function in a child, and return the message that it sends when it is ready.

    Raises MountError with the child's error, or if it is not ready after `wait_seconds`.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    # Otherwise a Ctrl-C during the fork would be lost in one of the fork hooks that libraries have registered.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _run_child_and_exit(run, Background(writing))
    os.close(writing)
    process = os.pidfd_open(pid)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        outcome = _outcome(reading, wait_seconds)
    except BaseException:  # even Ctrl-C: whatever ends the wait, the child must not continue alone
        os.kill(pid, signal.SIGTERM)
        is_readable(process, END_SECONDS)
        raise
    finally:
        os.close(reading)
    if outcome is None:
        _, status = os.waitpid(pid, 0)
        raise MountError(f"the daemon ended with status {os.waitstatus_to_exitcode(status)} before it was ready")
    if "error" in outcome:
        is_readable(process, END_SECONDS)
        raise MountError(outcome["error"], exit_status=outcome["status"])
    return str(outcome["ready"])


def _outcome(pipe: int, wait_seconds: float) -> dict[str, Any] | None:
    """The outcome that the child sent, or None if it ended without one."""
    line = b""
    while not line.endswith(b"\n"):
        if not is_readable(pipe, wait_seconds):
            raise MountError(f"not ready after {wait_seconds:.0f} s: gave up", exit_status=EXIT_TIMEOUT)
        piece = os.read(pipe, 1 << 16)
        if not piece:
            return None
        line += piece
    outcome: dict[str, Any] = json.loads(line)
    return outcome


def _run_child_and_exit(run: Callable[[Background], int], background: Background) -> None:
    """Run the child, and exit. Never returns into the parent's code."""
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        os.setsid()
        signal_when_parent_ends(signal.SIGTERM)
        _close_inherited()
        status = run(background)
    except TouchfsError as error:
        background.failed(error)
        status = getattr(error, "exit_status", 1)
    except BaseException:  # the last frame of this process: log the reason, whatever it is
        log.critical("the daemon failed", exc_info=True)
        background.failed(MountError(f"the daemon failed: {last_words()}"))
    finally:
        logging.shutdown()
        os._exit(status)


def _close_inherited() -> None:
    """Close descriptors inherited from the calling program (a shell's `3>file`, a build's pipes). Readers at their
    other ends would wait as long as this process lives.

    Python opens files as non-inheritable, so an inheritable descriptor was inherited.
    """
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
            if descriptor > 2 and os.get_inheritable(descriptor):
                os.close(descriptor)
