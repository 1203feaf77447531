"""Decompressing the shards that wait for it, while the rest of the dataset is served.

A process of its own does it, indexes them, and then has the supervisor reload, as anybody would: by SIGHUP. Where it
takes long, also in between, when more of them can be served. It is the zygote's child and ends with it. A new program,
not a fork: nothing that is open here concerns it, and the mount ends only when nobody has the FUSE descriptor.

What could not be decompressed, as there was no room, is tried again only after a reload that somebody else asked for.
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
from touchfs_mount.daemon import logs
from touchfs_mount.daemon.logs import LogOptions

log = logging.getLogger(__name__)

# How often, at most, what is ready is shown before all is.
RELOAD_SECONDS = 30.0
_NICENESS = 10


@dataclass(frozen=True, slots=True)
class Work:
    """What the process is asked to do. `options` are those with which shards are decompressed at once.

    `memory` is the directory for an index in memory, which the mount shares: what fails is known only from there.
    """

    source: str
    options: Options
    in_place: bool
    in_memory: bool
    memory: str | None
    paths: tuple[str, ...]
    supervisor: int
    zygote: int
    log: LogOptions


class Preparer:
    """At most one such process, kept by the zygote."""

    def __init__(self, options: Options, *, in_place: bool, in_memory: bool = False) -> None:
        self._options = options
        self._in_place = in_place
        self._in_memory = in_memory
        self._process: _Process | None = None
        self._tried: set[str] = set()

    def follow(self, dataset: Dataset, log_options: LogOptions) -> None:
        """Start it, if shards of a new generation of the dataset wait for it, and none is at work."""
        if self._process is not None and self._process.is_running:
            return
        if self._process is None or not self._process.has_finished:
            self._tried.clear()  # it was not the process that had the dataset read anew
        self._process = None
        paths = {shard.path for shard in dataset.shards if is_waiting(shard)} - self._tried
        if paths:
            self._tried |= paths
            where = self._in_place, self._in_memory, shared_index()
            told = dataset.source, self._options, *where, tuple(paths), os.getppid(), os.getpid()
            try:
                self._process = _Process(Work(*told, log_options))
            except OSError:
                log.exception("compressed shards are not prepared")


class _Process:
    """Its work is in a file in memory, which it makes empty before it has the dataset read anew for the last time: when
    that is done, it itself may still be about to end.
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
    """That process. The signals that are for the supervisor alone are ignored, as they are by the zygote."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so as to leave nothing unfinished behind
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.nice(_NICENESS)
    work: Work = pickle.load(sys.stdin.buffer)
    logs.configure(work.log)
    if os.getppid() != work.zygote:
        return
    if work.memory is not None:
        share_index(work.memory)
    log.info("decompressing %s", counted(len(work.paths), "shard"))
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
        log.error("compressed shards are not prepared: %s", error)
        sys.exit(1)
    log.info("decompressed")
    os.ftruncate(sys.stdin.fileno(), 0)
    os.kill(work.supervisor, signal.SIGHUP)


class _ReloadTrigger:
    """Has the dataset read anew where more of it is ready by now."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._ready = 0
        self._next = time.monotonic() + RELOAD_SECONDS

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + RELOAD_SECONDS
        ready = sum(form is not None for form in find_prepared(self._work.paths).values())
        if ready > self._ready:
            self._ready = ready
            os.kill(self._work.supervisor, signal.SIGHUP)
