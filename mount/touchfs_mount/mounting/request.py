"""The parameters of a mount."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from touchfs.dataset import Dataset
from touchfs.iterators.store_place import StateDatabase
from touchfs.store.place import STATE_SUFFIX, state_path
from touchfs_mount.beside.indexing import BackgroundIndexer
from touchfs_mount.beside.prefetching import Prefetcher
from touchfs_mount.control.facts import DEFAULT, ControlOptions
from touchfs_mount.logs import logs
from touchfs_mount.logs.logs import LogOptions
from touchfs_mount.mountpoints.options import MountOptions
from touchfs_mount.numbers.sockets import MetricsAddress
from touchfs_mount.requests.access import DEFAULT_MODES, Modes


@dataclass(frozen=True, slots=True)
class MountRequest:
    """The parameters of a mount. `open_dataset` opens a source; its index is in `index_dir`.

    `indexer` indexes the shards that it leaves as they are, `prefetcher` fetches those of other stores. `modes`,
    if given, replace the source's modes. The numbers are served at `metrics`. With `verify`, files are compared with
    their checksums. The iterators are in the `state_database`, if there is one; each `split` of a source has its own.

    Until all shards are to be indexed, a program may index `listings_max` of them a minute by listing them; 0 is no
    limit.
    """

    source: str
    open_dataset: Callable[[str], Dataset]
    indexer: BackgroundIndexer
    index_dir: str
    options: MountOptions
    split: str | None = None
    state_dir: str | None = None
    state_database: StateDatabase | None = None
    log: LogOptions = logs.DEFAULT
    strict: bool = False
    verify: bool = False
    listings_max: int = 0
    control: ControlOptions = DEFAULT
    modes: Modes = DEFAULT_MODES
    metrics: MetricsAddress | None = None
    prefetcher: Prefetcher | None = None

    @property
    def walk_max(self) -> int:
        """How many shards a program may index a minute by listing them now."""
        return 0 if self.indexer.is_asked else self.listings_max

    @property
    def state_path(self) -> str:
        return state_path(self.source, STATE_SUFFIX, self.state_dir, self.split)

    def follow(self, dataset: Dataset) -> None:
        """In the zygote, start the programs that a new generation of the dataset needs."""
        self.indexer.follow(dataset, self.log)
        if self.prefetcher is not None:
            self.prefetcher.follow(dataset, self.log)
