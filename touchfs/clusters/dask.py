"""Connect to a Dask scheduler, or start one on this machine, as an executor for `touchfs.core.jobs`.

Dask sends pickles, so a scheduler is trusted wholly: anyone who can reach it can run any code on its workers, and here.
Data never gets that trust.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from touchfs.clusters.executor import ClusterExecutor
from touchfs.clusters.worker_checks import FILES_MAX, compare, marked, view_machine
from touchfs.core.errors import LostWorkerError, MissingExtraError, UsageError
from touchfs.core.extras import install_hint
from touchfs.core.urls import shown

# The scheduler that is started here, for the time of a command.
LOCAL = "local"
_CONNECT_SECONDS, _CLOSE_SECONDS = 10, 3
_PORT_MAX = 65535


@contextmanager
def cluster(scheduler: str, processes: int, sees: Sequence[str], writes: Sequence[str]) -> Iterator[Executor]:
    """An executor of the workers of a scheduler: its address (`tcp://…`, `tls://…`), or `LOCAL` for `processes` workers
    of one thread here, whose scheduler and dashboard are at 127.0.0.1.

    Each worker must have this version of touchfs, see the same data at the paths `sees`, and the same directories
    `writes`. Raises UsageError if not, and for what is no address; MissingExtraError without Dask, and LostWorkerError
    if nobody answers.
    """
    try:
        from distributed import Client, Security
    except ImportError as error:
        raise MissingExtraError(f"--dask needs the dask extra: `{install_hint('dask')}`") from error
    client_type: Any = Client
    security: Callable[..., Any] = Security
    if scheduler != LOCAL:
        _check_address(scheduler)
    if scheduler.startswith("tls://") and security().get_connection_args("client")["ssl_context"] is None:
        message = "tls:// needs certificates: name them in Dask's configuration (docs/clusters.md)"
        raise UsageError(message, path=scheduler)
    # They log each connection that ends. Our errors say the same. The client has a level of its own.
    for name in ("distributed", "distributed.client", "asyncio", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        address: Any = scheduler
        if scheduler == LOCAL:
            from touchfs.clusters.local import LocalWorker, local_cluster

            address = stack.enter_context(local_cluster(processes))
        client = client_type.__new__(client_type)
        try:
            client_type.__init__(client, address, timeout=_CONNECT_SECONDS, set_as_default=False)
            stack.callback(client.close, timeout=_CLOSE_SECONDS)
        except (OSError, ValueError, TypeError) as error:
            with suppress(AttributeError):  # it may fail before there is one
                client._loop_runner.stop()  # a constructor that fails leaves its thread running
            raise LostWorkerError(f"no Dask scheduler answers there: {error}", path=scheduler) from error
        if scheduler == LOCAL:
            client.register_plugin(LocalWorker())
        executor = ClusterExecutor(client, shown(scheduler))
        _check(executor, scheduler, sees, writes)
        yield executor


def _check_address(scheduler: str) -> None:
    """Raise UsageError for what is no address: the client that Dask makes for it does not close properly."""
    from distributed.comm.addressing import get_address_host_port

    if not scheduler:
        raise UsageError("the address of the Dask scheduler is empty: is a variable unset?")
    find: Callable[..., tuple[str, int]] = get_address_host_port
    try:
        host, port = find(scheduler if "://" in scheduler else f"tcp://{scheduler}", strict=True)
    except ValueError:
        host, port = "", 0
    if not host or not 0 < port <= _PORT_MAX:
        problem = "is no address of a Dask scheduler: write tcp://HOST:PORT, tls://HOST:PORT, or local"
        raise UsageError(problem, path=scheduler)


def _check(executor: ClusterExecutor, scheduler: str, sees: Sequence[str], writes: Sequence[str]) -> None:
    """Ask all workers what they see. Raises UsageError if it is not what we see."""
    sees = sees[:FILES_MAX]
    with marked(writes) as markers:
        expected = view_machine(sees, markers)
        try:
            answers = executor.run_on_all(view_machine, sees, markers)
        except OSError as error:  # also CommClosedError and TimeoutError
            message = f"the connection to the Dask scheduler ended: {error}"
            raise LostWorkerError(message, path=scheduler) from error
    if not answers:
        raise UsageError("the Dask scheduler has no workers: start some with `dask worker`", path=scheduler)
    for worker, answer in answers.items():
        if problem := compare(expected, answer):
            raise UsageError(f"the worker {worker} {problem}", path=scheduler)
