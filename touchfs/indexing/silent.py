"""Shards whose file system does not answer: whoever looks at one of their files waits, perhaps for ever.

So who must not wait looks first, in threads: at all paths one after the other, and where one takes its time, a further
thread goes on with the next. A path that has not answered after some seconds is *silent*, and its thread is left
behind.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from time import monotonic

from touchfs.indexing.catalogs import make_notice
from touchfs.indexing.preparing import SILENT_SUFFIX, Notice

# So long a mount waits, unless it is told.
PATIENCE_SECONDS = 10.0

THREADS_MAX = 256
_NEXT_SECONDS = 0.05


def silent_paths(paths: Iterable[str], seconds: float) -> frozenset[str]:
    """Those of the paths that do not answer within so many seconds, nor what is in them if they are directories.

    Where so many hang that no thread is left, all the others are taken for silent, too.
    """
    todo = deque(dict.fromkeys(paths))
    looked_at: dict[threading.Thread, tuple[str, float]] = {}
    ended = threading.Event()

    def work() -> None:
        me = threading.current_thread()
        with suppress(IndexError):
            while True:
                looked_at[me] = "", monotonic()
                path = todo.popleft()
                looked_at[me] = path, monotonic()
                _look(path)
        looked_at.pop(me, None)
        ended.set()

    threads = 0
    while todo or looked_at:
        now = monotonic()
        waiting = [now - since for _, since in list(looked_at.values())]
        if todo and threads < THREADS_MAX and all(waited > _NEXT_SECONDS for waited in waiting):
            threads += 1
            threading.Thread(target=work, name=f"look-{threads}", daemon=True).start()
        elif waiting and min(waiting) > seconds and (not todo or threads == THREADS_MAX):
            break
        ended.wait(_NEXT_SECONDS)
        ended.clear()
    return frozenset([*todo, *(path for path, _ in list(looked_at.values()) if path)])


def _look(path: str) -> None:
    with suppress(OSError):
        os.stat(path)
        with os.scandir(path) as entries:
            for entry in entries:
                with suppress(OSError):
                    entry.stat()


def shards_of_silent(paths: Iterable[str], silent: Collection[str], known: Iterable[str]) -> tuple[list[str], set[str]]:
    """The paths of shards, each silent one replaced by those of the shards that were known at it or in it; and which
    of them nobody has looked at.
    """
    found: list[str] = []
    unseen: set[str] = set()
    for path in paths:
        if path in silent:
            there = [each for each in known if each == path or each.startswith(path + "/")] or [path]
            found += there
            unseen.update(there)
        else:
            found.append(path)
    return found, unseen


def silent_notice(path: str, place: str) -> Notice:
    """Where nothing is known of a shard: a catalog at `place` with a suffix, that says so."""
    text = (
        f"This shard cannot be served.\n\n{path} does not answer: is its file system there? When it is again, "
        "`touchfs reload`, or mount again.\n"
    )
    return Notice(place + SILENT_SUFFIX, make_notice(place + SILENT_SUFFIX, text, {}))
