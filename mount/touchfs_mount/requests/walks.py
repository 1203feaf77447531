"""Bounds walks: programs that list the directories of many shards that are not indexed yet, as `find` and `du` do.

A walk through a bucket would read all of it. Only listings count: a name that is looked up or opened is wanted.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from touchfs.core.errors import NotIndexedError
from touchfs.posix.bounded_cache import BoundedCache

_SECONDS = 60.0
_PROCESSES_KEPT = 1000
_PROCESS = re.compile(r"^Tgid:\t(\d+)$", re.MULTILINE)


class Walks:
    """The listings of processes. Each may index `most` shards by them within a minute; 0 is no limit."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._listings: BoundedCache[int, deque[float]] = BoundedCache(_PROCESSES_KEPT)

    def check(self, thread: int) -> None:
        """Count a listing by a thread of a process. Raises NotIndexedError if its process has made too many."""
        most = self._most()
        if not most:
            return
        process, name = _process_of(thread)
        times = self._listings.get(process, deque)
        now = time.monotonic()
        while times and times[0] < now - _SECONDS:
            times.popleft()
        if len(times) >= most:
            raise NotIndexedError(
                f"has listed {most:,} shards without an index within a minute, which is all that "
                "--indexing-walk allows: `touchfs index` indexes all",
                path=f"{name} (pid {process})",
            )
        times.append(now)


def _process_of(thread: int) -> tuple[int, str]:
    """The process of a thread, and its name. A thread that nothing is known of counts as a process."""
    with suppress(OSError):
        status = Path(f"/proc/{thread}/status").read_text(errors="replace")
        if (found := _PROCESS.search(status)) is not None:
            return int(found[1]), Path(f"/proc/{thread}/comm").read_text(errors="replace").rstrip("\n")
    return thread, "a program"
