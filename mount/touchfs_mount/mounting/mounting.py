"""Mounts a source: combines the dataset, the state store, the tree and the daemon."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from touchfs.catalog.keys import Keys
from touchfs.dataset import Dataset, counted
from touchfs.errors import FormatError, MountError, NotFoundError, SourceError, StateError, TouchfsError, UsageError
from touchfs.indexing.in_memory import discard as discard_index
from touchfs.indexing.in_memory import index_in_memory
from touchfs.indexing.preparing import hold_all, is_waiting, release
from touchfs.indexing.serving import why_unservable
from touchfs.posix import links
from touchfs.posix.trust import make_directory
from touchfs.source.scratch.store import Scratch
from touchfs.store.open_table import OpenTable
from touchfs.store.patience import Patience, with_patience
from touchfs.store.place import STATE_SUFFIX, log_path, state_path
from touchfs.store.plans import SharedPlans
from touchfs.store.problem import SharedProblem
from touchfs.store.shared_numbers import SharedNumbers
from touchfs.store.store import StateStore
from touchfs.tree.tree import Tree
from touchfs_mount.control.facts import DEFAULT, ControlOptions, MountFacts, OwnFiles, StorePlace
from touchfs_mount.control.known_iterators import KnownIterators
from touchfs_mount.control.recent_errors import RecentErrors
from touchfs_mount.daemon import logs
from touchfs_mount.daemon.background import Background, in_background
from touchfs_mount.daemon.logs import LogOptions
from touchfs_mount.daemon.notifications import invalidate
from touchfs_mount.daemon.supervisor import serve
from touchfs_mount.daemon.worker import Shared
from touchfs_mount.daemon.zygote import Renewal
from touchfs_mount.mounting import mountpoint
from touchfs_mount.mounting.libfuse import MountOptions
from touchfs_mount.mounting.preparing import Preparer
from touchfs_mount.mounting.shard_ids import ShardIds
from touchfs_mount.requests.access import DEFAULT_MODES, Modes, SourceModes, read_source_modes
from touchfs_mount.requests.operations import TouchOperations

# The exit status of `touchfs mount` if the source cannot be opened: the first matching class counts.
_SOURCE_STATUSES: tuple[tuple[type[TouchfsError], int], ...] = (
    (UsageError, 2),
    (NotFoundError, 11),
    (SourceError, 12),
    (FormatError, 13),
)
EXIT_INDEX = 14

# The time limit for cleaning up the state store at the end of a mount.
CLEAN_UP_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MountRequest:
    """The parameters of a mount. `open_dataset` opens a source, and indexes new shards in `index_dir`.

    `preparer` decompresses the shards that it leaves compressed. `modes`, if given, replace the source's modes.
    """

    source: str
    open_dataset: Callable[[str], Dataset]
    preparer: Preparer
    index_dir: str
    options: MountOptions
    state_dir: str | None = None
    log: LogOptions = logs.DEFAULT
    xattrs: bool = True
    strict: bool = False
    control: ControlOptions = DEFAULT
    modes: Modes = DEFAULT_MODES

    @property
    def state_path(self) -> str:
        """The path of the state store."""
        return state_path(self.source, STATE_SUFFIX, self.state_dir)


def mount(request: MountRequest, *, foreground: bool, wait_seconds: float, say: Callable[[str], None]) -> int:
    """Mount, and return the exit status: in the foreground at the end of the mount, else when the root answers.

    `say` gets the message for success. Raises MountError. In the background only the child accesses the source, so that
    a source that does not answer leads to a timeout.
    """
    if not foreground and request.log.file is None:
        request = replace(request, log=_default_log(request))
    # Check the path as written. `_serve` resolves links, because that accesses the source, which may not answer.
    if request.options.allow_other and os.geteuid() == 0:
        links.guard()
    _refuse_nesting(os.path.abspath(request.source), request.options.path)
    claim = mountpoint.prepare(request.options.path)
    try:
        if foreground:
            return _serve(request, claim, None, say)
        say(in_background(lambda background: _serve(request, claim, background, background.ready), wait_seconds))
    except BaseException:
        claim.remove()
        raise
    return 0


def _default_log(request: MountRequest) -> LogOptions:
    """The log options of a mount in the background. A read-only mount has no log if the file cannot be written."""
    file = log_path(request.options.path, request.state_dir)
    options = replace(request.log, file=file, is_ours=True)
    if request.options.read_only:
        try:
            make_directory(os.path.dirname(file))
            logs.open_file(options).close()
        except (OSError, MountError):
            return replace(request.log, file=os.devnull)
    return options


def _serve(
    request: MountRequest, claim: mountpoint.Claim, background: Background | None, say: Callable[[str], None]
) -> int:
    with ExitStack() as until_removed:
        try:
            _refuse_overlap(request)
            store = None if request.options.read_only else _store_place(request.state_path)
            log_file = None if request.log.file is None else logs.open_file(request.log)
            with suppress(SourceError):
                index_in_memory()  # before the fork: a reload may need it first, but ends before the mount does
            dataset = _open(request)
            if log_file is not None:
                if background is not None:
                    background.detach(log_file)
                log_file.close()
            logs.configure(request.log)
            generations = _Generations(request, store)
            operations, shared = _operations(request, *generations.first(dataset), store)

            def ready() -> None:
                claim.release()
                release(dataset)  # the other processes keep their own locks of decompressed files
                until_removed.enter_context(mountpoint.liveness_socket(request.options.path))
                say(f"{request.source} is mounted at {request.options.path} ({_summary(dataset)})")

            def mounted() -> None:
                claim.release()
                request.preparer.follow(dataset, request.log)

            renewal = generations.renewal(dataset.source, operations)
            try:
                return serve(operations, renewal, shared, request.options, ready, mounted)
            finally:
                if store is not None:
                    _clean_up(store)
        finally:
            discard_index()
            claim.remove()


def _store_place(path: str) -> StorePlace:
    """Create the state store if there is none, and close it again: each worker opens it after the fork."""
    try:
        store = StateStore(path)
    except StateError as error:
        raise MountError(f"{error}; a mount with --read-only needs no state") from error
    try:
        store.add_mount(os.getpid())
        return StorePlace(path, store.identity or b"")
    finally:
        store.close()


def _clean_up(place: StorePlace) -> None:
    """After the mount has ended, delete its rows. Closing a store for the last time also removes SQLite's own files."""
    try:
        store = StateStore(place.path, later=True, identity=place.identity)
        with_patience(Patience(CLEAN_UP_SECONDS), store.remove_mount, os.getpid())
        store.close()
    except StateError as error:
        log.info("%s", error)


def _open(request: MountRequest) -> Dataset:
    """Open the dataset. Raises MountError with the exit status for the error."""
    try:
        dataset = request.open_dataset(request.source)
        if reason := why_unservable(dataset, strict=request.strict):
            raise FormatError(reason, path=request.source)
        return dataset
    except TouchfsError as error:
        if isinstance(error, SourceError) and _is_inside(error.path or "", request.index_dir):
            message = f"{error}; --no-index-cache keeps the index in memory"
            raise MountError(message, exit_status=EXIT_INDEX) from error
        status = next((status for kind, status in _SOURCE_STATUSES if isinstance(error, kind)), 1)
        raise MountError(str(error), exit_status=status) from error


def _operations(
    request: MountRequest, tree: Tree, modes: Modes, store: StorePlace | None
) -> tuple[TouchOperations, Shared]:
    """The handlers, and the shared memory of their processes."""
    options = request.options
    shared = Shared(options.workers)
    facts = MountFacts(
        path=options.path,
        pid=os.getpid(),
        since=time.time(),
        files=OwnFiles(request.index_dir, request.log.file, None if store is None else store.path),
        loop="trio" if options.trio_loop else "own",
        counters=shared.counters,
        reloads=shared.reloads,
        resent=shared.resent,
        opens=OpenTable(alone=options.workers == 1),
        errors=RecentErrors(),
        known=KnownIterators(),
        problem=SharedProblem(),
    )
    control = request.control
    return TouchOperations(tree, facts, store, modes=modes, xattrs=request.xattrs, options=control), shared


class _Generations:
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
        """The first tree, and the modes of its entries."""
        return self._tree(dataset, self._stored_ids(dataset), self._access(dataset))

    def renewal(self, source: str, operations: TouchOperations) -> Renewal:
        """The functions that switch to the next generation. `source` is absolute, unlike that of the request."""

        def reopen() -> tuple[Dataset, list[int] | None, SourceModes | None]:
            dataset = self._request.open_dataset(source)
            return dataset, self._stored_ids(dataset), self._access(dataset)

        def adopt(generation: tuple[Dataset, list[int] | None, SourceModes | None]) -> Callable[[int], None]:
            dataset, stored, access = generation
            after, modes = self._tree(dataset, stored, access)
            hold_all(dataset)
            self._request.preparer.follow(dataset, self._request.log)
            before, modes_before = operations.reload(after, modes)
            return lambda descriptor: invalidate(
                descriptor, before, after, shows_another=lambda inode: modes.of(inode) != modes_before.of(inode)
            )

        return Renewal(reopen, adopt)

    def _tree(self, dataset: Dataset, stored: list[int] | None, access: SourceModes | None) -> tuple[Tree, Modes]:
        """A tree, and the modes of its entries."""
        ids = self._ids.of(_identities(dataset), stored)
        modes = self._request.modes if access is None else access.modes(ids)
        list_by_key, prefix = self._request.control.list_by_key, self._request.control.path_prefix
        if list_by_key and isinstance(dataset.keys, Keys):
            dataset.keys.repeated  # noqa: B018  compute it now: all workers need it, and listings must not wait
        prefix = self._request.options.path if prefix is None else prefix
        return Tree(dataset, ids, self._plans, self._numbers, list_by_key=list_by_key, prefix=prefix), modes

    def _access(self, dataset: Dataset) -> SourceModes | None:
        """The modes of the source's files, if the mount shows them."""
        follows_source = self._request.options.allow_other and self._request.modes is DEFAULT_MODES
        return read_source_modes(dataset) if follows_source else None

    def _stored_ids(self, dataset: Dataset) -> list[int] | None:
        """The shard ids from the state store, or None if there is no store or it cannot be used."""
        if self._store is None:
            return None
        try:
            store = StateStore(self._store.path, later=True, identity=self._store.identity)
            try:
                return store.shard_ids(_identities(dataset))
            finally:
                store.close()
        except StateError as error:
            log.warning("%s: the inode numbers of new shards will change after a remount", error)
            return None


def _identities(dataset: Dataset) -> list[tuple[str, str]]:
    return [(shard.path, shard.identity) for shard in dataset.shards]


def _summary(dataset: Dataset) -> str:
    broken = sum(bool(shard.report) for shard in dataset.shards)
    waiting = sum(is_waiting(shard) and not shard.report for shard in dataset.shards)
    parts = [f"{dataset}"]
    if waiting:
        parts.append(f"{counted(waiting, 'shard')} to be decompressed, see PREPARING.txt in them")
    if dataset.unseen:
        parts.append(f"{counted(len(dataset.unseen), 'shard')} that did not answer, and may have changed")
    if broken:
        parts.append(f"{counted(broken, 'shard')} with errors, see ERROR.txt in them")
    return "; ".join(parts)


def _refuse_nesting(source: str, point: str) -> None:
    """Raise MountError if one path contains the other. A mount inside its source would be listed, indexed and copied as
    a part of it; a source inside its mount would be hidden.
    """
    if _is_inside(point, source):
        reason = "the mount point is inside the dataset"
    elif _is_inside(source, point):
        reason = "the dataset is inside the mount point"
    else:
        return
    beside = f"{min(source, point, key=len)}.mnt"
    raise MountError(f"{reason}: mount beside it, at {beside}", path=point, exit_status=mountpoint.EXIT_MOUNTPOINT)


def _refuse_overlap(request: MountRequest) -> None:
    """Raise MountError if files of the daemon are inside the mount point: it would wait for itself. Files that
    it only reads cannot be there, because a mount point must be empty.
    """
    _refuse_nesting(os.path.realpath(request.source), request.options.path)
    scratch = Scratch.configured().directory
    written_paths = {
        "index": request.index_dir,
        "state": request.state_path,
        "scratch store": scratch,
    }
    if request.log.file is not None:
        written_paths["log"] = request.log.file
    for name, path in written_paths.items():
        if _is_inside(os.path.realpath(path), request.options.path):
            raise MountError(
                f"the {name} {path} is inside the mount point",
                path=request.options.path,
                exit_status=mountpoint.EXIT_MOUNTPOINT,
            )


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
