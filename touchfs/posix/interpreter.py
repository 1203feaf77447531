"""Start Python interpreters that never import from the current directory, and programs of ours in them.

`python -c` puts the current directory first in `sys.path`, and multiprocessing starts its processes that way. That
directory is often the dataset's, where others may write: a file `json.py` in it would be run. `-I` would hide packages
installed with `pip install --user`, so we use `-P`; multiprocessing takes no options, so there it is PYTHONSAFEPATH.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from touchfs.core.extras import leave_out_pandas
from touchfs.posix.processes import signal_when_parent_ends

_VARIABLE = "PYTHONSAFEPATH"
# What ends a command: Ctrl-C, and a batch system or a supervisor.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def program(module: str, end: signal.Signals = signal.SIGTERM) -> list[str]:
    """Return the command that runs `main` of a module as a program of its own, which ends with this process.

    The program gets the signal `end` then. SIGTERM lets it remove its temporary files. Only SIGKILL ends one that hangs
    in C code. While this process lives, it alone handles SIGINT and SIGTERM, as with `ignore_signals`.
    """
    begin = f"import gc; gc.disable(); from {__name__} import follow; follow({os.getpid()}, {end:d})"
    # To look for garbage while it imports takes a tenth of that time (`touchfs.cli.importing`).
    imported = f"from {module} import main; gc.freeze(); gc.enable()"
    return [sys.executable, "-P", "-c", f"{begin}; {imported}; main()"]


def follow(parent: int, end: int) -> None:
    """Make a program, at its start, end with its parent."""

    def end_if_orphaned(*_: object) -> None:
        if os.getppid() != parent:
            sys.exit(1)

    # A program inherits which signals the parent ignores and blocks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_if_orphaned)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal_when_parent_ends(end)
    leave_out_pandas()
    end_if_orphaned()  # the parent may have ended before


@contextmanager
def safe_path() -> Iterator[None]:
    """Within this context, processes started by multiprocessing do not import from the current directory.

    The variable is set only here, because it would change the scripts that a user has us run (`pipe:`).
    """
    before = user_setting()
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        restore(before)


def user_setting() -> str | None:
    """Return the user's own value of PYTHONSAFEPATH, for `restore` in a process started under `safe_path`."""
    return os.environ.get(_VARIABLE)


def restore(value: str | None) -> None:
    """Set PYTHONSAFEPATH to a value from `user_setting`; None unsets it."""
    if value is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = value


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Within this context, in the main thread, SIGINT and SIGTERM do not interrupt the start of processes: they are
    handled at its end. Processes that multiprocessing starts begin with them blocked; see `ignore_signals`.
    """
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # to start it later would unblock the signals
    arrived: list[int] = []
    # Blocking is not enough: the kernel gives the signal to another thread, and Python still calls the handler here.
    handlers = {each: signal.signal(each, lambda number, frame: arrived.append(number)) for each in SIGNALS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in arrived:
            signal.raise_signal(number)


def ignore_signals() -> None:
    """In a process started under `deferred_signals`: only its parent handles SIGINT and SIGTERM. Ctrl-C reaches all
    processes of a terminal's job, and a batch system sends SIGTERM to all of a job.

    Programs that this process starts ignore them, too: a decoder that ends would look as one that a file has crashed.
    """
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
