"""Mounts a source: combines the dataset, the state store, the tree and the daemon."""

from __future__ import annotations

import logging
import os
import resource
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from touchfs.core.errors import (
    MountError,
    SourceError,
    StateError,
    TouchfsError,
)
from touchfs.core.location import Location
from touchfs.core.urls import shown
from touchfs.dataset import Dataset, counted
from touchfs.dataset.samples import DatasetSamples
from touchfs.indexing.in_memory import discard as discard_index
from touchfs.indexing.in_memory import index_in_memory
from touchfs.indexing.preparing import is_waiting, release
from touchfs.indexing.serving import unshown_audio
from touchfs.iterators.store_place import StorePlace, fleet_store
from touchfs.posix import links
from touchfs.posix.memory.shared import SharedText
from touchfs.posix.trust import make_directory
from touchfs.source.remote.storage_options import divide_requests
from touchfs.store.open_table import OpenTable
from touchfs.store.patience import Patience, with_patience
from touchfs.store.place import log_path, state_directory
from touchfs.store.store import StateStore
from touchfs.tree.tree import Tree
from touchfs_mount.control.facts import MountFacts, OwnFiles
from touchfs_mount.control.known_iterators import KnownIterators
from touchfs_mount.daemon.background import Background, in_background
from touchfs_mount.daemon.serving import Serving
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.daemon.supervisor import serve
from touchfs_mount.logs import logs
from touchfs_mount.logs.journal import has_journal, identifier
from touchfs_mount.logs.logs import LogOptions
from touchfs_mount.mounting.generations import Generations
from touchfs_mount.mounting.overlap import refuse_nesting, refuse_overlap
from touchfs_mount.mounting.request import MountRequest
from touchfs_mount.mounting.source import open_source
from touchfs_mount.mountpoints import control_place, mountpoint
from touchfs_mount.mountpoints.control_place import ControlPlace
from touchfs_mount.mountpoints.passed import mounted_on_autofs
from touchfs_mount.numbers.log_level import LogLevel
from touchfs_mount.numbers.recent_errors import RecentErrors
from touchfs_mount.numbers.sockets import MetricsSockets, listening
from touchfs_mount.numbers.text import metrics_text
from touchfs_mount.requests.access import Modes

if TYPE_CHECKING:
    from touchfs_mount.numbers.metrics import MetricsServer

# With 40, one read in 200 of thirty shards failed; with 48, none. Stores of other machines need more.
DESCRIPTORS_MIN = 64
# The time limit for cleaning up the state store at the end of a mount.
CLEAN_UP_SECONDS = 2.0

log = logging.getLogger(__name__)


def mount(request: MountRequest, *, foreground: bool, wait_seconds: float, say: Callable[[str], None]) -> int:
    """Mount, and return the exit status: in the foreground at the end of the mount, else when the root answers.

    `say` gets the message for success. Raises MountError. In the background only the child accesses the source, so that
    a source that does not answer leads to a timeout.
    """
    _check_descriptors()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # rotating logs ends no mount that is not ready yet
    if not foreground and request.log.file is None:
        request = replace(request, log=_default_log(request))
    # Check the path as written. `_serve` resolves links, because that accesses the source, which may not answer.
    if request.options.allow_other and os.geteuid() == 0:
        links.guard()
    refuse_nesting(Location.of(request.source).absolute.path, request.options.path)
    is_mounted = request.options.descriptor is not None
    claim = mountpoint.Claim(request.options.path) if is_mounted else mountpoint.prepare(request.options.path)
    try:
        if foreground:
            return _serve(request, claim, None, say)
        with mounted_on_autofs(request.options) as options:
            request = replace(request, options=options)
            say(in_background(lambda background: _serve(request, claim, background, background.ready), wait_seconds))
    except BaseException:
        claim.remove()
        raise
    return 0


def _check_descriptors() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if 0 <= limit < DESCRIPTORS_MIN:
        raise MountError(
            f"a mount needs {DESCRIPTORS_MIN} open files, and a process may have {limit} here: raise ulimit -Hn"
        )


def _default_log(request: MountRequest) -> LogOptions:
    """The log options of a mount in the background: the journal, or else a file. A read-only mount has no log if the
    file cannot be written.
    """
    if has_journal():
        return replace(request.log, identifier=identifier(request.options.path))
    file = log_path(request.options.path, request.state_dir)
    options = replace(request.log, file=file, is_ours=True)
    if not request.options.has_control:
        try:
            make_directory(os.path.dirname(file))
            logs.open_log(options).close()
        except (OSError, MountError):
            return replace(request.log, file=os.devnull)
    return options


def _serve(
    request: MountRequest, claim: mountpoint.Claim, background: Background | None, say: Callable[[str], None]
) -> int:
    with ExitStack() as until_removed:
        try:
            refuse_overlap(request)
            sockets = None if request.metrics is None else until_removed.enter_context(listening(request.metrics))
            place = _control_place(request)
            if place is not None:
                until_removed.callback(place.remove)
            store = None if place is None else _store_place(request.state_path)
            log_file = None if request.log.place is None else logs.open_log(request.log)
            with suppress(SourceError):
                index_in_memory()  # before the fork: a reload may need it first, but ends before the mount does
            dataset = open_source(request)
            if log_file is not None:
                if background is not None:
                    background.detach(log_file)
                log_file.close()
            if store is not None:
                store = _in_database(store, request, dataset)
            level = LogLevel(request.log.level)
            logs.configure(request.log, level)
            generations = Generations(request, store)
            serving, shared, facts = _serving(request, *generations.first(dataset), store, level, sockets, place)

            def ready() -> str:
                claim.release()
                release(dataset)  # the other processes keep their own locks of decompressed files
                until_removed.enter_context(mountpoint.liveness_socket(request.options.path))
                message = f"{shown(request.source)} is mounted at {request.options.path} ({_summary(dataset)})"
                say(message)
                return message

            def mounted() -> None:
                claim.release()
                request.follow(dataset)

            renewal = generations.renewal(dataset.source, serving)
            try:
                metrics = None if sockets is None else _metrics_server(sockets, facts)
                return serve(serving, renewal, shared, request.options, place, ready, mounted, metrics)
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
        raise MountError(f"{error}; a mount with --control none needs no state") from error
    try:
        store.add_mount(os.getpid())
        return StorePlace(path, store.identity or b"")
    finally:
        store.close()


def _in_database(store: StorePlace, request: MountRequest, dataset: Dataset) -> StorePlace:
    """Create the tables of the iterators in the database if there are none, and close it again, as `_store_place`."""
    if request.state_database is None:
        return store
    directory = os.path.dirname(request.state_path)
    fleet = request.state_database.place(request.source, request.split, directory, secrets.token_bytes(16))
    try:
        fleet_store(fleet, lambda: DatasetSamples(dataset).fingerprint).close()
    except TouchfsError as error:
        raise MountError(str(error)) from error
    return replace(store, fleet=fleet)


def _clean_up(place: StorePlace) -> None:
    """After the mount has ended, delete its rows. Closing a store for the last time also removes SQLite's own files."""
    try:
        if place.fleet is not None:
            fleet_store(place.fleet, None, later=True).leave()
    except StateError as error:
        log.info("%s", error)
    try:
        store = StateStore(place.path, later=True, identity=place.identity)
        with_patience(Patience(CLEAN_UP_SECONDS), store.remove_mount, os.getpid())
        store.close()
    except StateError as error:
        log.info("%s", error)


def _control_place(request: MountRequest) -> ControlPlace | None:
    """Where the control directory is to be mounted; None if there is none. Raises MountError."""
    options = request.options
    if options.control_descriptor is not None:
        return control_place.passed(options.control_descriptor)
    if not options.has_control:
        return None
    if options.control is not None:
        return control_place.named(options.control, options.path)
    return control_place.chosen(state_directory(request.state_dir), allow_other=options.allow_other)


def _serving(
    request: MountRequest,
    tree: Tree,
    modes: Modes,
    store: StorePlace | None,
    level: LogLevel,
    sockets: MetricsSockets | None,
    place: ControlPlace | None,
) -> tuple[Serving, Shared, MountFacts]:
    """What is served, the shared memory of their processes, and what is known about the mount."""
    options = request.options
    divide_requests(options.workers + (request.prefetcher is not None))
    shared = Shared(options.workers)
    facts = MountFacts(
        path=options.path,
        pid=os.getpid(),
        since=time.time(),
        files=_own_files(request, store),
        control=None if place is None else place.path,
        workers=options.workers,
        counters=shared.counters,
        reloads=shared.reloads,
        resent=shared.resent,
        opens=OpenTable(),
        errors=RecentErrors(),
        known=KnownIterators(),
        problem=SharedText(),
        numbers=shared.numbers,
        shards=request.indexer.counts,
        level=level,
        metrics=None if sockets is None else sockets.url,
    )
    control = request.control
    link = None if place is None else place.link
    serving = Serving(tree, modes, facts, store, control, link=link, walk_max=lambda: request.walk_max)
    return serving, shared, facts


def _own_files(request: MountRequest, store: StorePlace | None) -> OwnFiles:
    fleet = None if store is None else store.fleet
    database = None if fleet is None else fleet.shown
    return OwnFiles(request.index_dir, request.log.place, None if store is None else store.path, database)


def _metrics_server(sockets: MetricsSockets, facts: MountFacts) -> MetricsServer:
    """The server of the mount's numbers. It is imported only here, as it needs h11 and few mounts have one."""
    from touchfs_mount.numbers.metrics import MetricsServer

    return MetricsServer(sockets, lambda: metrics_text(facts.numbers.totals(), facts.counts()))


def _summary(dataset: Dataset) -> str:
    known = dataset.indexed_so_far
    broken = sum(bool(shard.reports) for shard in known)
    waiting = sum(is_waiting(shard) and not shard.report for shard in known)
    parts = [
        str(dataset) if dataset.is_indexed else f"{counted(len(dataset.listed), 'shard')}, {len(known):,} indexed yet"
    ]
    if waiting:
        parts.append(f"{counted(waiting, 'shard')} to be decompressed, see PREPARING.txt in them")
    if dataset.unseen:
        parts.append(f"{counted(len(dataset.unseen), 'shard')} that did not answer, and may have changed")
    if broken:
        parts.append(f"{counted(broken, 'shard')} with errors, see ERROR.txt in them")
    if dataset.left_out:
        parts.append(str(dataset.left_out))
    if advice := unshown_audio(dataset):
        parts.append(advice)
    return "; ".join(parts)
