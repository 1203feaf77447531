"""The children of the zygote: forked, and watched through a pidfd each."""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from touchfs.core.errors import shortage_of
from touchfs_mount.supervision.restart_limits import LACKED_ROOM

log = logging.getLogger(__name__)

# Of 1,000. The kernel adds it to the part of the memory that a process has, before it chooses one to end.
_OOM_SCORE = 500


class Children:
    """Forks children that do not have the descriptors `hidden` open. `poll` shows which have exited (`reap`).

    Where memory is short, the kernel ends a child before us: a child is replaced, but without us the mount ends.
    """

    def __init__(self, poll: select.poll, hidden: Sequence[int]) -> None:
        self._poll = poll
        self._hidden = hidden
        self._children: dict[int, tuple[int, Callable[[int], None]]] = {}  # pidfd: (pid, called with its exit status)

    def fork(self, run: Callable[[], int], ended: Callable[[int], None]) -> int:
        """Fork a child that runs a function and exits with its result; return the pid. `ended` gets the exit status.

        Raises OSError if the system forks none.
        """
        pid = os.fork()
        if pid == 0:
            gc.freeze()  # a collection writes to what it looks at, and each write copies a page that we share
            _come_first_if_memory_is_short()
            run_child_and_exit(run, [*self._hidden, *self._children])
        try:
            watched = os.pidfd_open(pid)
        except OSError:  # nobody would notice its end
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._children[watched] = pid, ended
        self._poll.register(watched, select.POLLIN)
        return pid

    def fork_aside(self, run: Callable[[], int], ended: Callable[[int], None]) -> int | None:
        """Like `fork`, for a child that the mount can do without: if the fork fails, `ended` gets status 1."""
        try:
            return self.fork(run, ended)
        except OSError as error:
            log.error("no child can be forked: %s", error)
            ended(1)
            return None

    def reap(self, watched: int) -> bool:
        """Call `ended` of the child of a readable pidfd. False if the descriptor is no child's."""
        if watched not in self._children:
            return False
        pid, ended = self._children.pop(watched)
        self._poll.unregister(watched)
        os.close(watched)
        _, status = os.waitpid(pid, 0)
        ended(os.waitstatus_to_exitcode(status))
        return True

    def report_lingering(self) -> None:
        """Report children whose main thread has ended as ended. Another thread of theirs may hang in a call to a file
        system that does not answer, where not even SIGKILL ends it.
        """
        for watched, (pid, ended) in list(self._children.items()):
            status = status_of_lingering(pid)
            if status is not None:
                self._children[watched] = pid, lambda status: None
                ended(os.waitstatus_to_exitcode(status))


def _come_first_if_memory_is_short() -> None:
    with suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
        if int(file.read()) < _OOM_SCORE:
            file.seek(0)
            file.write(str(_OOM_SCORE))


def status_of_lingering(pid: int) -> int | None:
    """The wait(2) status of a process whose main thread has ended while another thread has not; else None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
        return int(fields[-1]) if state == "Z" and len(os.listdir(f"/proc/{pid}/task")) > 1 else None
    except OSError:
        return None


def run_child_and_exit(run: Callable[[], int], close: list[int]) -> None:
    """In a forked child, close these descriptors, run a function, and exit with its result. Never returns."""
    status = 1
    try:
        for descriptor in close:
            os.close(descriptor)
        status = run()
    except BaseException as error:  # the last frame of this process: log the reason, whatever it is
        if shortage_of(error) is None:
            log.critical("process %d failed", os.getpid(), exc_info=True)
        else:
            log.error("process %d has no room: %s", os.getpid(), error)
            status = LACKED_ROOM
    finally:
        logging.shutdown()
        os._exit(status)
