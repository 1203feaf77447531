"""The generations of a mounted dataset: the first one, and one more at each reload."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from touchfs.catalog.keys import Keys
from touchfs.core.errors import FormatError, StateError
from touchfs.dataset import Dataset
from touchfs.indexing.preparing import hold_all
from touchfs.iterators.store_place import StorePlace
from touchfs.store.plans import SharedPlans
from touchfs.store.shared_numbers import SharedNumbers
from touchfs.store.store import StateStore
from touchfs.tree.tree import Tree
from touchfs.verify.checksums import without_checksums
from touchfs_mount.daemon.renewal import Renewal
from touchfs_mount.daemon.serving import Serving
from touchfs_mount.mounting.awaited_indexer import await_index
from touchfs_mount.mounting.invalidating import invalidate
from touchfs_mount.mounting.request import MountRequest
from touchfs_mount.mounting.shard_ids import ShardIds
from touchfs_mount.requests.access import DEFAULT_MODES, Modes, SourceModes, read_source_modes

log = logging.getLogger(__name__)

# Shards that a warning names.
_NAMED = 10


class _Generation(NamedTuple):
    """A dataset with the path and identity of each of its shards, their ids in the state store if it works, and the
    modes of its files if the mount shows them.
    """

    dataset: Dataset
    identities: list[tuple[str, str]]
    stored_ids: list[int] | None
    access: SourceModes | None


class Generations:
    """The trees of a mount, one for each generation of its dataset. Shard ids, plans and numbers of slices are common
    to all.
    """

    def __init__(self, request: MountRequest, store: StorePlace | None) -> None:
        self._request = request
        self._store = store
        self._ids = ShardIds(has_store=store is not None)
        self._plans = SharedPlans()
        self._numbers = SharedNumbers()

    def first(self, dataset: Dataset) -> tuple[Tree, Modes]:
        return self._tree(self._opened(dataset))

    def renewal(self, source: str, serving: Serving) -> Renewal:
        """The functions that switch to the next generation. `source` is absolute, unlike that of the request."""

        def reopen() -> _Generation:
            return self._opened(self._request.open_dataset(source))

        def adopt(opened: _Generation) -> Callable[[int], None]:
            after, modes = self._tree(opened)
            hold_all(opened.dataset)
            self._request.follow(opened.dataset)
            before, modes_before = serving.reload(after, modes)
            return lambda descriptor: invalidate(
                descriptor, before, after, shows_another=lambda inode: modes.of(inode) != modes_before.of(inode)
            )

        return Renewal(reopen, adopt, self._request.indexer.look)

    def _opened(self, dataset: Dataset) -> _Generation:
        shards = dataset.shards if dataset.is_indexed else dataset.listed
        identities = [(shard.path, shard.identity) for shard in shards]
        return _Generation(dataset, identities, self._stored_ids(identities), self._access(dataset))

    def _tree(self, opened: _Generation) -> tuple[Tree, Modes]:
        dataset, access = opened.dataset, opened.access
        ids = self._ids.of(opened.identities, opened.stored_ids)
        modes = self._request.modes if access is None else access.modes(ids)
        modes = modes.for_us_and_root() if self._request.options.allow_root else modes
        list_by_key, prefix = self._request.control.list_by_key, self._request.control.path_prefix
        await_index(dataset, self._request.indexer.hurry, self._request.options.timeout_seconds)
        if list_by_key and dataset.is_indexed and isinstance(dataset.keys, Keys):
            try:
                dataset.keys.repeated  # noqa: B018  compute it now: all workers need it, and listings must not wait
            except FormatError as error:
                log.warning("there is no by-key/: %s", error)
                dataset.without_keys(str(error))
        prefix = self._request.options.path if prefix is None else prefix
        verify = self._request.verify
        if verify and (lacking := without_checksums(dataset)):
            log.warning("shards without checksums, which are not verified: %s", ", ".join(lacking[:_NAMED]))
        plans, numbers = self._plans, self._numbers
        return Tree(dataset, ids, plans, numbers, list_by_key=list_by_key, prefix=prefix, verify=verify), modes

    def _access(self, dataset: Dataset) -> SourceModes | None:
        follows_source = self._request.options.allow_other and self._request.modes is DEFAULT_MODES
        return read_source_modes(dataset) if follows_source else None

    def _stored_ids(self, identities: list[tuple[str, str]]) -> list[int] | None:
        if self._store is None:
            return None
        try:
            store = StateStore(self._store.path, later=True, identity=self._store.identity)
            try:
                return store.shard_ids(identities)
            finally:
                store.close()
        except StateError as error:
            log.warning("%s: the inode numbers of new shards will change after a remount", error)
            return None
