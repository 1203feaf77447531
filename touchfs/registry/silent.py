"""Look at paths whose file system may not answer. Then any access to a file on it waits, perhaps for ever.

A caller that must not wait first tests all paths in threads: one thread tests them in order, and if a path takes its
time, another thread continues with the next one. A path that has not answered after some seconds is *silent*, and its
thread is abandoned. A process with such a thread may not end, even when it is killed. So a command that has to end
lets another process ask (`answers_in_time`), which imports little more than this module.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from time import monotonic
from typing import TypeVar

from touchfs.core.errors import SourceError, TouchfsError
from touchfs.core.location import Location
from touchfs.posix.threads import start_thread
from touchfs.source.remote.storage_options import StorageOptions

T = TypeVar("T")
THREADS_MAX = 256
_NEXT_SECONDS = 0.05


def silent_paths(paths: Iterable[str], seconds: float, access: Callable[[str], object]) -> frozenset[str]:
    """The paths that do not answer `access` within `seconds`. An error is an answer: who opens the path gets it again.

    If so many paths hang that no thread is left, all remaining ones count as silent too.
    """
    todo = deque(dict.fromkeys(paths))
    in_progress: dict[threading.Thread, tuple[str, float]] = {}
    ended = threading.Event()

    def work() -> None:
        me = threading.current_thread()
        try:
            while True:
                in_progress[me] = "", monotonic()
                path = todo.popleft()
                in_progress[me] = path, monotonic()
                with suppress(TouchfsError):
                    access(path)
        except IndexError:
            pass
        finally:
            in_progress.pop(me, None)
            ended.set()

    # A healthy store takes a while to answer, too.
    at_once = StorageOptions.configured().requests if any(Location.of(path).is_url for path in todo) else 1
    threads = 0
    while todo or in_progress:
        now = monotonic()
        waiting = [now - since for _, since in list(in_progress.values())]
        if todo and threads < THREADS_MAX and (threads < at_once or all(waited > _NEXT_SECONDS for waited in waiting)):
            threads += 1
            start_thread(work, name=f"look-{threads}")
        elif waiting and min(waiting) > seconds and (not todo or threads == THREADS_MAX):
            break
        ended.wait(_NEXT_SECONDS)
        ended.clear()
    return frozenset([*todo, *(path for path, _ in list(in_progress.values()) if path)])


def answers_in_time(paths: Iterable[str], seconds: float, ask: Callable[[str], T]) -> dict[str, T]:
    """Call `ask`, a function of a module, with each path, and return its answers. Silent paths are left out.

    Another process calls it. Raises SourceError if none can be started.
    """
    # Which imports what starts processes, and `ls` has no use for.
    from touchfs.posix.helper_process import HelperEndedError, HelperProcess

    if not (asked := list(dict.fromkeys(paths))):
        return {}
    try:
        with closing(HelperProcess(__name__, seconds, ask, end=signal.SIGKILL)) as helper:
            answers: dict[str, T] = helper.call(asked)
            return answers
    except OSError as error:
        raise SourceError(f"no process can be started to look at data: {error.strerror}") from error
    except HelperEndedError as error:
        raise SourceError(f"the process that looks at data was ended{error}") from error


def serve(seconds: float, ask: Callable[[str], T]) -> Callable[[Sequence[str]], dict[str, T]]:
    """In the process: the function that asks."""

    def answers(paths: Sequence[str]) -> dict[str, T]:
        found: dict[str, T] = {}

        def keep(path: str) -> None:
            found[path] = ask(path)

        # Where many paths are in one directory, one thread waits for all.
        silent = silent_paths(map(os.path.dirname, paths), seconds, os.path.lexists)
        silent_paths((path for path in paths if os.path.dirname(path) not in silent), seconds, keep)
        return dict(found)

    return answers


def main() -> None:
    """The entry point of the process."""
    from touchfs.posix.helper_process import answer_calls

    # It may be there for long: nobody who reads what the command prints must wait for its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    answer_calls(serve)
