"""Facts about a mount, and the options of its control directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from touchfs.store.open_table import OpenTable
from touchfs.store.problem import SharedProblem
from touchfs_mount.control.known_iterators import KnownIterators
from touchfs_mount.control.recent_errors import RecentErrors
from touchfs_mount.daemon.worker import Reloads


class StorePlace(NamedTuple):
    """The path of a mount's state store, and the identity of the store that is expected there."""

    path: str
    identity: bytes


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """Options of the control directory and its iterators.

    `path_prefix` is the prefix of the paths that iterators print, by default the mount point. `extra_mode` has extra
    permission bits for the files of iterators. With `fsync` each step waits for the disk. `list_by_key` is reported in
    `info`.
    """

    path_prefix: str | None = None
    extra_mode: int = 0
    fsync: bool = False
    iterators: bool = True
    list_by_key: bool = False


DEFAULT = ControlOptions()


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """The paths of what a mount writes, as `info` names them. `log` and `state` are None if it has none."""

    index: str
    log: str | None
    state: str | None


NO_FILES = OwnFiles("", None, None)


@dataclass(frozen=True, slots=True)
class MountFacts:
    """Facts about the mount itself, and the memory that its processes share.

    `since` is the time at which it began, in seconds since 1970. `counters` has the counters of each worker, and
    `resent` is `Shared.resent`.
    """

    path: str
    pid: int
    since: float
    files: OwnFiles
    loop: str
    counters: list[memoryview[int]]
    reloads: Reloads
    resent: memoryview[int]
    opens: OpenTable
    errors: RecentErrors
    known: KnownIterators
    problem: SharedProblem
