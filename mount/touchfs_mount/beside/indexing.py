"""Decompresses and indexes the shards that are not ready, while the dataset is served.

A program beside the mount does this, and then sends SIGHUP to the supervisor, which reloads. If decompressing takes
long, it also does so in between, when more shards are ready.

Shards that could not be decompressed for lack of space are tried again only after a reload that a user requested.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from itertools import starmap

from touchfs.core.errors import TouchfsError
from touchfs.dataset import Dataset, counted
from touchfs.dataset.shard import ListedShard
from touchfs.indexing import open_dataset
from touchfs.indexing.in_memory import share_index, shared_index
from touchfs.indexing.preparing import find_prepared, is_waiting
from touchfs.indexing.silent import PATIENCE_SECONDS
from touchfs.posix.memory.shared import shared_cells
from touchfs.registry.open import known_shard
from touchfs.shard.options import Options
from touchfs.source.fingerprint import Files
from touchfs_mount.beside.program import Program, finish, take_work
from touchfs_mount.logs.logs import LogOptions
from touchfs_mount.numbers.shard_counts import ShardCounts

log = logging.getLogger(__name__)

# The minimum time between reloads that show a part of the shards.
RELOAD_SECONDS = 30.0
# So often the program may die while it works at one generation.
DEATHS = 3


@dataclass(frozen=True, slots=True)
class Work:
    """The task of the program. `options` decompress shards as soon as they are opened.

    `memory` is the directory of the mount's index in memory, if there is one: failures are recorded only there. If a
    reader waits, nobody else's turn comes first (`is_awaited`).
    """

    source: str
    options: Options
    in_place: bool
    in_memory: bool
    memory: str | None
    shards: dict[str, Files]
    supervisor: int
    is_awaited: bool


class BackgroundIndexer:
    """Starts the program, in the zygote. Shards that are not compressed are indexed only after somebody has asked for
    it. One runs at a time, at low priority; once a reader waits for all, a second one begins that overtakes it.
    `counts` says how far all are.
    """

    def __init__(self, options: Options, *, in_place: bool, in_memory: bool = False) -> None:
        self.counts = ShardCounts()
        self._options = options
        self._in_place = in_place
        self._in_memory = in_memory
        self._program: Program | None = None
        self._tried: set[str] = set()
        self._deaths = 0
        self._generation: tuple[Dataset, LogOptions] | None = None
        # All processes of the mount share them.
        self._asked, self._awaited, self._has_given_up = shared_cells(1, 1, 1)
        self._was_asked = self._was_awaited = False

    def ask(self) -> bool:
        """Have all shards indexed. Any process of the mount may ask. False if that has failed."""
        self._asked[0] = 1
        return not self._has_given_up[0]

    def hurry(self) -> bool:
        """Have all shards indexed at normal priority, as a reader waits. False if that has failed."""
        self._awaited[0] = 1
        return self.ask()

    @property
    def is_asked(self) -> bool:
        return bool(self._asked[0])

    def follow(self, dataset: Dataset, log_options: LogOptions) -> None:
        """Start the program if shards of a new generation of the dataset are not ready and none runs."""
        self._generation = dataset, log_options
        self.counts.follow(dataset)
        self._deaths = self._awaited[0] = self._has_given_up[0] = 0
        if self._program is not None and self._program.is_running:
            return
        if self._program is None or not self._program.has_finished:
            self._tried.clear()  # this reload was not requested by the program
        self._start()

    def look(self) -> None:
        """From time to time: count what is indexed, and start the program if by now somebody has asked for it or waits
        for it, or if it has died.
        """
        self.counts.look()
        program = self._program
        if program is None:
            if self.is_asked and not self._was_asked:
                self._start()
        elif not program.is_running and not program.has_finished and self._deaths < DEATHS:
            self._deaths += 1
            self._has_given_up[0] = self._deaths == DEATHS
            log.error(
                "the process that indexes has failed %s", "for good" if self._has_given_up[0] else "and begins again"
            )
            if not self._has_given_up[0]:
                self._tried.clear()
                self._start()
        elif program.is_running and self._awaited[0] and not self._was_awaited:
            self._tried.clear()
            self._start()

    def _start(self) -> None:
        if self._generation is None:
            return
        dataset, log_options = self._generation
        self._program, self._was_asked, self._was_awaited = None, self.is_asked, bool(self._awaited[0])
        waiting: list[ListedShard] = [shard for shard in dataset.indexed_so_far if is_waiting(shard)]
        if self._was_asked:
            waiting += dataset.unindexed
        shards: dict[str, Files] = {shard.path: shard.files for shard in waiting if shard.path not in self._tried}
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
                is_awaited=self._was_awaited,
            )
            try:
                self._program = Program(__name__, work, log_options, is_awaited=work.is_awaited)
            except OSError:
                log.exception("shards are not indexed")
                self._has_given_up[0] = 1


def main() -> None:
    """The entry point of the program."""
    work: Work = take_work()
    if work.memory is not None:
        share_index(work.memory)
    log.info("indexing %s", counted(len(work.shards), "shard"))
    try:
        open_dataset(
            work.source,
            options=work.options,
            in_place=work.in_place,
            in_memory=work.in_memory,
            preparing=_ReloadTrigger(work),
            patience_seconds=PATIENCE_SECONDS,
            gives_way=not work.is_awaited,
        )
    except TouchfsError as error:
        log.error("shards are not indexed: %s", error)
        sys.exit(1)
    log.info("indexed")
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
        prepared = find_prepared(starmap(known_shard, self._work.shards.items()))
        ready = sum(form is not None for form in prepared.values())
        if ready > self._ready:
            self._ready = ready
            os.kill(self._work.supervisor, signal.SIGHUP)
