"""Ends the requests of callers that a signal ends, or that handle Ctrl-C. All others wait for their answers.

The kernel sends an INTERRUPT for whatever wakes a caller: also for a signal whose handler goes on (a profiler's, a
batch system's, that of Go's scheduler), for one that stops the program, and without any when a control group is frozen.
Few programs expect EINTR of a file. So the signals that the caller has decide.

The process that reads an INTERRUPT need not have its request. It notes the time in a cell that all processes share, and
each looks at the callers of its requests then. It looks again until they are answered: the kernel sends one INTERRUPT
for a request, and none for a second signal.
"""

from __future__ import annotations

import errno
import re
import signal
from pathlib import Path
from time import monotonic_ns

from touchfs_mount.requests.connection import KernelConnection
from touchfs_mount.requests.pool import Call, Pool


def _mask(*signals: int) -> int:
    return sum(1 << number - 1 for number in signals)


# Without a handler, these end no program.
_GOES_ON = _mask(
    *(signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH),
    *(signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)
_CTRL_C = _mask(signal.SIGINT)
_FIELD = re.compile(r"^(Tgid|Pid|SigPnd|ShdPnd|SigBlk|SigCgt):\t(\w+)$", re.MULTILINE)


class Interrupts:
    """The interrupted ones among the calls of a pool, each with a request as the first of its `argument`."""

    def __init__(self, noted: memoryview[int], connection: KernelConnection, pool: Pool) -> None:
        self._noted = noted
        self._connection = connection
        self._pool = pool
        self._seen = noted[0]
        self._watched: set[Call] = set()

    def note(self) -> None:
        """Note that the kernel has interrupted a request, of any process."""
        self._noted[0] = monotonic_ns()
        self.end()

    def end(self) -> None:
        """End the requests whose callers a signal ends."""
        unanswered = self._pool.calls
        if self._seen != self._noted[0]:
            self._seen = self._noted[0]
            self._watched.update(unanswered)
        self._watched.intersection_update(unanswered)
        for call in [each for each in self._watched if _ends(each.argument[0].process)]:
            self._watched.remove(call)
            self._connection.refuse(call.argument[0].unique, errno.EINTR)


def _ends(thread: int) -> bool:
    """Whether a signal ends what a thread waits for. False if nothing is known of it, as of one in a container around
    that of the mount.
    """
    try:
        status = Path(f"/proc/{thread}/status").read_text(errors="replace")
    except OSError:
        return False
    fields = dict(_FIELD.findall(status))
    blocked, handled, due = (int(fields[name], 16) for name in ("SigBlk", "SigCgt", "SigPnd"))
    if fields["Tgid"] == fields["Pid"]:  # what is sent to a program, its first thread takes
        due |= int(fields["ShdPnd"], 16)
    return bool(due & ~blocked & (_CTRL_C | ~(handled | _GOES_ON)))
