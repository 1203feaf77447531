"""Decompresses and indexes compressed shards, while the rest of the dataset is served.

A separate process does this, and then sends SIGHUP to the supervisor, which reloads. If it takes long, it also does so
in between, when more shards are ready. It is a child of the zygote and ends with it. It is a new program, not a fork:
it must not inherit the FUSE descriptor, because the mount ends only when no process has that open.

Shards that could not be decompressed for lack of space are tried again only after a reload that a user requested.
"""

from __future__ import annotations

import ctypes
import io
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from touchfs.dataset import Dataset, counted
from touchfs.errors import TouchfsError
from touchfs.indexing import open_dataset
from touchfs.indexing.in_memory import share_index, shared_index
from touchfs.indexing.preparing import find_prepared, is_waiting
from touchfs.indexing.silent import PATIENCE_SECONDS
from touchfs.posix import interpreter
from touchfs.shard.options import Options
from touchfs.source.fingerprint import Files
from touchfs_mount.daemon import logs
from touchfs_mount.daemon.log_level import LogLevel
from touchfs_mount.daemon.logs import LogOptions

log = logging.getLogger(__name__)

# The minimum time between reloads that show a part of the shards.
RELOAD_SECONDS = 30.0
_NICENESS = 10


@dataclass(frozen=True, slots=True)
class Work:
    """The task of the process. `options` decompress shards as soon as they are opened.

    `memory` is the directory of the mount's index in memory, if there is one: failures are recorded only there.
    """

    source: str
    options: Options
    in_place: bool
    in_memory: bool
    memory: str | None
    shards: dict[str, Files]
    supervisor: int
    zygote: int
    log: LogOptions


class Preparer:
    """Starts the process, in the zygote. At most one runs at a time."""

    def __init__(self, options: Options, *, in_place: bool, in_memory: bool = False) -> None:
        self._options = options
        self._in_place = in_place
        self._in_memory = in_memory
        self._process: _Process | None = None
        self._tried: set[str] = set()

    def follow(self, dataset: Dataset, log_options: LogOptions) -> None:
        """Start the process if shards of a new generation of the dataset are to be decompressed and none runs."""
        if self._process is not None and self._process.is_running:
            return
        if self._process is None or not self._process.has_finished:
            self._tried.clear()  # this reload was not requested by the process
        self._process = None
        waiting = (shard for shard in dataset.shards if shard.path not in self._tried and is_waiting(shard))
        shards: dict[str, Files] = {shard.path: shard.files for shard in waiting}
        if shards:
            self._tried |= shards.keys()
            work = Work(
                source=dataset.source,
                options=self._options,
                in_place=self._in_place,
                in_memory=self._in_memory,
                memory=shared_index(),
                shards=shards,
                supervisor=os.getppid(),
                zygote=os.getpid(),
                log=log_options,
            )
            try:
                self._process = _Process(work)
            except OSError:
                log.exception("compressed shards are not decompressed")


class _Process:
    """The running process. Its `Work` is in a file in memory. The process truncates this file before it requests the
    last reload, because after that reload it may still be about to exit.
    """

    def __init__(self, work: Work) -> None:
        command = interpreter.command(f"from {__name__} import main; main()")
        self._work = io.FileIO(os.memfd_create("touchfs-preparing"), "r+")
        self._work.write(pickle.dumps(work))
        self._work.seek(0)
        self._popen = subprocess.Popen(command, stdin=self._work, stdout=subprocess.DEVNULL)

    @property
    def has_finished(self) -> bool:
        return os.fstat(self._work.fileno()).st_size == 0

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None and not self.has_finished


def main() -> None:
    """The entry point of the process. It ignores the signals for the supervisor, as the zygote does."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that temporary files are removed
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.nice(_NICENESS)
    work: Work = pickle.load(sys.stdin.buffer)
    logs.configure(work.log, LogLevel(work.log.level))
    if os.getppid() != work.zygote:
        return
    if work.memory is not None:
        share_index(work.memory)
    log.info("decompressing %s", counted(len(work.shards), "shard"))
    try:
        open_dataset(
            work.source,
            options=work.options,
            in_place=work.in_place,
            in_memory=work.in_memory,
            preparing=_ReloadTrigger(work),
            patience_seconds=PATIENCE_SECONDS,
        )
    except TouchfsError as error:
        log.error("compressed shards are not decompressed: %s", error)
        sys.exit(1)
    log.info("decompressed")
    os.ftruncate(sys.stdin.fileno(), 0)
    os.kill(work.supervisor, signal.SIGHUP)


class _ReloadTrigger:
    """A progress callback that requests a reload when more shards are ready."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._ready = 0
        self._next = time.monotonic() + RELOAD_SECONDS

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + RELOAD_SECONDS
        ready = sum(form is not None for form in find_prepared(self._work.shards).values())
        if ready > self._ready:
            self._ready = ready
            os.kill(self._work.supervisor, signal.SIGHUP)
