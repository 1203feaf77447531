"""From a source to a running mount: composes the dataset, the state store, the tree and the daemon."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

import platformdirs

from touchfs.dataset import Dataset
from touchfs.errors import MountError
from touchfs.state.store import StateStore
from touchfs.tree.inode import SHARD_IDS_MAX
from touchfs.tree.tree import Tree
from touchfs_mount import mountpoint
from touchfs_mount.background import Background, in_background
from touchfs_mount.control import MountFacts
from touchfs_mount.daemon import MountOptions, serve
from touchfs_mount.operations import TouchOperations
from touchfs_mount.workers import Shared


@dataclass(frozen=True, slots=True)
class MountRequest:
    """What a user asked for. `open_dataset` opens, and indexes, the source."""

    source: str
    mountpoint: str
    open_dataset: Callable[[], Dataset]
    options: MountOptions
    state_dir: str | None = None
    log_file: str | None = None
    xattrs: bool = True


def mount(request: MountRequest, *, foreground: bool, wait_seconds: float, say: Callable[[str], None]) -> int:
    """Mount, and return the exit status: at the end of the mount in the foreground, else when the root answers."""
    _refuse_overlap(request)
    created = mountpoint.prepare(request.options.path)
    if foreground:
        return _serve(request, created, lambda: None, say)

    def run(background: Background) -> int:
        return _serve(request, created, lambda: background.detach(_log_file(request)), background.ready)

    try:
        say(in_background(run, wait_seconds))
    except MountError:
        _remove(request.options.path, created)
        raise
    return 0


def _serve(request: MountRequest, created: bool, detach: Callable[[], None], say: Callable[[str], None]) -> int:
    try:
        dataset = request.open_dataset()
        os.makedirs(_state_dir(request), exist_ok=True)
        detach()
        store_path = os.path.join(_state_dir(request), _name(request) + ".sqlite")
        store = StateStore(store_path)
        shard_ids = store.shard_ids([(shard.path, shard.identity) for shard in dataset.shards])
        if max(shard_ids, default=0) > SHARD_IDS_MAX:
            raise MountError(f"over {SHARD_IDS_MAX} shard ids were given: delete the state store {store_path}")
        mount_id = store.add_mount(os.getpid())
        store.close()
        options = request.options
        shared = Shared(options.workers)
        facts = MountFacts(options.path, "trio" if options.trio_loop else "own", shared.counters)
        operations = TouchOperations(Tree(dataset, shard_ids), facts, store_path, mount_id, xattrs=request.xattrs)
        broken = sum(bool(shard.report) for shard in dataset.shards)
        warning = f"; {broken} with errors, see ERROR.txt in them" if broken else ""
        told = f"{len(dataset.shards)} shards{warning}, {dataset.samples} samples"
        return serve(operations, shared, options, lambda: say(f"{request.source} is mounted at {options.path} ({told})"))
    finally:
        _remove(request.options.path, created)


def _refuse_overlap(request: MountRequest) -> None:
    """A server that reads its own mount waits for itself."""
    source, path = os.path.realpath(request.source), request.options.path
    if source == path or source.startswith(path + "/"):
        raise MountError(
            f"the source {request.source} is inside the mount point",
            path=path,
            exit_status=mountpoint.EXIT_MOUNTPOINT,
        )


def _state_dir(request: MountRequest) -> str:
    return request.state_dir or platformdirs.user_state_dir("touchfs")


def _name(request: MountRequest) -> str:
    """The name of everything that is kept for a source."""
    return hashlib.blake2b(os.path.realpath(request.source).encode(errors="surrogateescape"), digest_size=16).hexdigest()


def _log_file(request: MountRequest) -> str:
    path = request.log_file or os.path.join(_state_dir(request), _name(request) + ".log")
    logging.getLogger().handlers.clear()
    logging.basicConfig(
        filename=path, level=logging.INFO, format="%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"
    )
    return path


def _remove(path: str, created: bool) -> None:
    if created:
        with contextlib.suppress(OSError):
            os.rmdir(path)
