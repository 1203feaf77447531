"""Progress for a service manager: a service that indexes before it is ready must not be taken for one that hangs."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from touchfs.posix.service_manager import ServiceManager
from touchfs.progress import Progress

# The start may take this much longer after each progress: some steps report nothing in between.
EXTENSION_SECONDS = 300
EVERY_SECONDS = 2.0


def reported(what: str, shown: Progress, clock: Callable[[], float] = monotonic) -> Progress:
    """A progress callback that calls `shown`, and also reports to the service manager if there is one.

    The report extends the time limit of the start, and shows in `systemctl status`. It is sent every `EVERY_SECONDS`
    while there is progress: work that hangs reports nothing, and its service fails.
    """
    manager = ServiceManager.of_environment()
    if not manager.address:
        return shown
    due, reported_at = 0.0, (-1, -1)

    def progress(done: int, total: int) -> None:
        nonlocal due, reported_at
        shown(done, total)
        if clock() >= due and (done, total) != reported_at:
            due, reported_at = clock() + EVERY_SECONDS, (done, total)
            percent = 100 * done // total if total else 0
            manager.notify(f"EXTEND_TIMEOUT_USEC={EXTENSION_SECONDS * 1_000_000}", f"STATUS={what}: {percent}%")

    return progress
