"""Decompresses and indexes compressed shards, while the rest of the dataset is served.

A program beside the mount does this, and then sends SIGHUP to the supervisor, which reloads. If it takes long, it also
does so in between, when more shards are ready.

Shards that could not be decompressed for lack of space are tried again only after a reload that a user requested.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from dataclasses import dataclass

from touchfs.dataset import Dataset, counted
from touchfs.errors import TouchfsError
from touchfs.indexing import open_dataset
from touchfs.indexing.in_memory import share_index, shared_index
from touchfs.indexing.preparing import find_prepared, is_waiting
from touchfs.indexing.silent import PATIENCE_SECONDS
from touchfs.shard.options import Options
from touchfs.source.fingerprint import Files
from touchfs_mount.beside.program import Program, finish, take_work
from touchfs_mount.daemon.logs import LogOptions

log = logging.getLogger(__name__)

# The minimum time between reloads that show a part of the shards.
RELOAD_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Work:
    """The task of the program. `options` decompress shards as soon as they are opened.

    `memory` is the directory of the mount's index in memory, if there is one: failures are recorded only there.
    """

    source: str
    options: Options
    in_place: bool
    in_memory: bool
    memory: str | None
    shards: dict[str, Files]
    supervisor: int


class Preparer:
    """Starts the program, in the zygote. At most one runs at a time."""

    def __init__(self, options: Options, *, in_place: bool, in_memory: bool = False) -> None:
        self._options = options
        self._in_place = in_place
        self._in_memory = in_memory
        self._program: Program | None = None
        self._tried: set[str] = set()

    def follow(self, dataset: Dataset, log_options: LogOptions) -> None:
        """Start the program if shards of a new generation of the dataset are to be decompressed and none runs."""
        if self._program is not None and self._program.is_running:
            return
        if self._program is None or not self._program.has_finished:
            self._tried.clear()  # this reload was not requested by the program
        self._program = None
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
            )
            try:
                self._program = Program(__name__, work, log_options)
            except OSError:
                log.exception("compressed shards are not decompressed")


def main() -> None:
    """The entry point of the program."""
    work: Work = take_work()
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
    finish()  # before the last reload, after which none of us is needed
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
