"""Facts about a mount, and the options of its control directory."""

from __future__ import annotations

from dataclasses import dataclass

from touchfs.posix.memory.shared import SharedText
from touchfs.store.open_table import OpenTable
from touchfs_mount.control.known_iterators import KnownIterators
from touchfs_mount.numbers.cells import BUSY_SINCE, FAILURES, LATE_REPLIES, LOST_RACES, PARKED
from touchfs_mount.numbers.log_level import LogLevel
from touchfs_mount.numbers.recent_errors import RecentErrors
from touchfs_mount.numbers.reloads import Reloads
from touchfs_mount.numbers.shard_counts import ShardCounts
from touchfs_mount.numbers.slots import MountNumbers
from touchfs_mount.numbers.text import MountCounts


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """Options of the control directory and its iterators.

    `path_prefix` is the prefix of the paths that iterators print, by default the mount point. `extra_mode` has extra
    permission bits for the files of iterators. With `fsync` each step waits for the disk. `list_by_key` is reported in
    `info`. The files of the samples of the next `prefetch_steps` steps are read ahead.
    """

    path_prefix: str | None = None
    extra_mode: int = 0
    fsync: bool = False
    iterators: bool = True
    list_by_key: bool = False
    prefetch_steps: int = 0


DEFAULT = ControlOptions()


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """The paths of what a mount writes, as `info` names them. `log` and `state` are None if it has none;
    `log` is a command if the log is in the journal. `state_store` is the database of the iterators, if
    they are in one.
    """

    index: str
    log: str | None
    state: str | None
    state_store: str | None = None


@dataclass(frozen=True, slots=True)
class MountFacts:
    """Facts about the mount itself, and the memory that its processes share.

    `since` is the time at which it began, in seconds since 1970. `control` is the directory of its control files.
    `counters` has the counters of each process that serves, and `resent` is `Shared.resent`. `metrics` is the address
    of its numbers, if they are served. `problem` is the error of the last change of the state store, if it failed.
    """

    path: str
    pid: int
    since: float
    files: OwnFiles
    control: str | None
    workers: int
    counters: list[memoryview[int]]
    reloads: Reloads
    resent: memoryview[int]
    opens: OpenTable
    errors: RecentErrors
    known: KnownIterators
    problem: SharedText
    numbers: MountNumbers
    shards: ShardCounts
    level: LogLevel
    metrics: str | None

    def total(self, cell: int) -> int:
        """The sum of a cell of all workers' counters."""
        return sum(counters[cell] for counters in self.counters)

    def counts(self) -> MountCounts:
        """The counts that `stats` shows besides those of `numbers`."""
        busy = sum(counters[BUSY_SINCE] > 0 for counters in self.counters)
        return MountCounts(
            since=self.since,
            workers=self.workers,
            shards=self.shards.shards,
            indexed_shards=self.shards.indexed,
            in_flight=busy + self.total(PARKED),
            lost_races=self.total(LOST_RACES),
            late_replies=self.total(LATE_REPLIES),
            internal_errors=self.total(FAILURES),
            resent=self.resent[0],
            reloads=self.reloads.ended,
        )
