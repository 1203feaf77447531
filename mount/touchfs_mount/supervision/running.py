"""The workers that run, by number."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable


class RunningWorkers:
    """The pids of the workers, as the zygote reports them. `send_signal` sends a signal to a pid."""

    def __init__(self, send_signal: Callable[[int, int], None] = os.kill) -> None:
        self.pids: dict[int, int] = {}
        # Pids that were killed, and why: one that waits in the kernel ends later.
        self.killed: dict[int, str] = {}
        self._send_signal = send_signal

    def kill(self, number: int, pid: int, why: str = "") -> None:
        """Kill worker `number`, if it is still the process `pid`."""
        if self.pids.get(number) == pid:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and the zygote is about to report it
                self._send_signal(pid, signal.SIGKILL)
                self.killed[pid] = why

    def kill_all(self) -> None:
        for number, pid in list(self.pids.items()):
            self.kill(number, pid)
