"""Paths as tasks name them. The workers of a cluster have current directories of their own, so there a path that a user
typed means another file, or none.

Elsewhere a path stays as it was typed: messages, plans and lists have it so.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor

from touchfs.core.location import Location


def is_here(executor: Executor | None) -> bool:
    """True if tasks run in this process or its children: they have its current directory, and see its open files."""
    if executor is None:
        return True
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

    return isinstance(executor, ProcessPoolExecutor | ThreadPoolExecutor) or getattr(executor, "starts_here", False)


def path_there(executor: Executor | None, path: str) -> str:
    """The path for a task of the executor. Nothing but the current directory is put before it, as links count."""
    location = Location.of(path)
    return location.path if location.is_url or is_here(executor) else os.path.join(os.getcwd(), path)
