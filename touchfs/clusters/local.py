"""A Dask scheduler of this machine, for the time of a command."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from distributed import LocalCluster, Worker, WorkerPlugin

from touchfs.posix import interpreter


@contextmanager
def local_cluster(processes: int) -> Iterator[LocalCluster]:
    """A scheduler and so many workers of one thread, at 127.0.0.1. `LocalWorker` is to be registered with them."""
    start: Any = LocalCluster
    with ExitStack() as stack:
        with interpreter.safe_path(), interpreter.deferred_signals():
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="touchfs-dask-"))
            cluster = stack.enter_context(
                start(
                    n_workers=processes,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,  # at ERROR, workers print the traceback of each failing task
                    local_directory=scratch,
                    scheduler_kwargs={"local_directory": scratch},
                )
            )
        yield cluster


class LocalWorker(WorkerPlugin):
    """A worker of this machine, which has the settings of its parent, and leaves signals to it."""

    def __init__(self) -> None:
        self._setting = interpreter.user_setting()

    def setup(self, worker: Worker) -> None:
        """Called in the main thread of each worker, also of one that replaces another."""
        interpreter.restore(self._setting)
        interpreter.ignore_signals()
