"""A daemon process whose parent waits until it is ready, and then exits with its success or its error.

The child is its own session, so it outlives the terminal. It keeps the parent's stderr, for progress bars, until
`Background.detach`, which it calls before it forks anything: from then on nothing of it holds the parent's terminal
or pipes. Its outcome goes through a pipe of its own, as one JSON line.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
from collections.abc import Callable

from touchfs.errors import MountError, TouchfsError
from touchfs_mount.mountpoint import EXIT_TIMEOUT

log = logging.getLogger(__name__)


class Background:
    """What the child has of its parent: a pipe for the one line that the parent waits for."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def detach(self, log_file: str) -> None:
        """Let go of the parent's standard streams; what goes to stderr from now on is in the log file."""
        with open(os.devnull, "r+b") as nowhere, open(log_file, "ab") as logged:
            os.dup2(nowhere.fileno(), 0)
            os.dup2(nowhere.fileno(), 1)
            os.dup2(logged.fileno(), 2)

    def ready(self, message: str) -> None:
        self._tell({"ready": message})

    def failed(self, error: TouchfsError) -> None:
        self._tell({"error": str(error), "status": getattr(error, "exit_status", 1)})

    def _tell(self, outcome: dict[str, object]) -> None:
        try:
            os.write(self._pipe, json.dumps(outcome).encode() + b"\n")
        except BrokenPipeError:
            log.warning("nobody waits any more for the outcome %r", outcome)


def in_background(run: Callable[[Background], int], wait_seconds: float) -> str:
    """Run in a child, and return what it says when it is ready. Raises MountError with its error, or at the time-out."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _be_the_child(run, Background(writing))
    os.close(writing)
    outcome = b""
    while not outcome.endswith(b"\n"):
        if not select.select([reading], [], [], wait_seconds)[0]:
            os.kill(pid, signal.SIGTERM)
            raise MountError(f"not ready after {wait_seconds:.0f} s: given up", exit_status=EXIT_TIMEOUT)
        piece = os.read(reading, 1 << 16)
        if not piece:
            _, status = os.waitpid(pid, 0)
            raise MountError(f"the daemon ended with status {os.waitstatus_to_exitcode(status)} before it was ready")
        outcome += piece
    told = json.loads(outcome)
    if "error" in told:
        os.waitpid(pid, 0)
        raise MountError(told["error"], exit_status=told["status"])
    return str(told["ready"])


def _be_the_child(run: Callable[[Background], int], background: Background) -> None:
    """Never returns into the parent's code."""
    status = 1
    try:
        os.setsid()
        status = run(background)
    except TouchfsError as error:
        background.failed(error)
        status = getattr(error, "exit_status", 1)
    except BaseException:  # noqa: BLE001 - the last frame of this process: say why it ends, whatever it is
        log.critical("the daemon failed", exc_info=True)
        background.failed(MountError("the daemon failed: its log says why"))
    finally:
        logging.shutdown()
        os._exit(status)
