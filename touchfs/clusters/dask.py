"""Connect to a Dask scheduler, or start one on this machine, as an executor for `touchfs.jobs`.

Dask sends pickles, so a scheduler is trusted wholly: whoever can reach it can run any code on its workers, and here.
Data never gets that trust.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import Any

from touchfs.clusters.asking import ask, compare, marked
from touchfs.clusters.executor import ClusterExecutor
from touchfs.errors import LostWorkerError, MissingExtraError, UsageError
from touchfs.posix import interpreter

# The scheduler that is started here, for the time of a command.
LOCAL = "local"
_CONNECT_SECONDS, _CLOSE_SECONDS = 10, 3


@contextmanager
def cluster(scheduler: str, processes: int, sees: Sequence[str], writes: Sequence[str]) -> Iterator[Executor]:
    """An executor of the workers of a scheduler: its address (`tcp://…`, `tls://…`), or `LOCAL` for `processes` workers
    of one thread here, whose scheduler and dashboard are at 127.0.0.1.

    Each worker must have this version of touchfs, see the same data at the paths `sees`, and the same directories
    `writes`. Raises UsageError if not, MissingExtraError without Dask, and LostWorkerError if nobody answers.
    """
    try:
        from distributed import Client, LocalCluster, Security
    except ImportError as error:
        raise MissingExtraError("--dask needs the dask extra: `pip install 'touchfs[dask]'`") from error
    connect: Callable[..., Any] = Client
    security: Callable[..., Any] = Security
    if scheduler.startswith("tls://") and security().get_connection_args("client")["ssl_context"] is None:
        message = "tls:// needs certificates: name them in Dask's configuration (docs/clusters.md)"
        raise UsageError(message, path=scheduler)
    for name in ("distributed", "asyncio", "tornado"):  # what they say of connections that end is said by our errors
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        address: Any = scheduler
        setting = interpreter.user_setting()
        if scheduler == LOCAL:
            with interpreter.safe_path():
                scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="touchfs-dask-"))
                address = stack.enter_context(_start(LocalCluster, processes, scratch))
        try:
            client = connect(address, timeout=_CONNECT_SECONDS, set_as_default=False)
            stack.callback(client.close, timeout=_CLOSE_SECONDS)
        except (OSError, ValueError, TypeError) as error:
            raise LostWorkerError(f"no Dask scheduler answers there: {error}", path=scheduler) from error
        if scheduler == LOCAL:
            client.run(interpreter.restore, setting)
        executor = ClusterExecutor(client)
        _check(executor, scheduler, sees, writes)
        yield executor


def _start(local_cluster: Callable[..., Any], processes: int, scratch: str) -> Any:
    return local_cluster(
        n_workers=processes,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.ERROR,
        local_directory=scratch,
    )


def _check(executor: ClusterExecutor, scheduler: str, sees: Sequence[str], writes: Sequence[str]) -> None:
    """Ask all workers what they see. Raises UsageError if it is not what we see."""
    with marked(writes) as markers:
        expected = ask(sees, markers)
        answers = executor.run_on_all(ask, sees, markers)
    if not answers:
        raise UsageError("the Dask scheduler has no workers: start some with `dask worker`", path=scheduler)
    for worker, answer in answers.items():
        if problem := compare(expected, answer):
            raise UsageError(f"the worker {worker} {problem}", path=scheduler)
