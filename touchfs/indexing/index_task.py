"""The index of one shard: taken as it is, or made. A task of `touchfs.core.jobs`, so it may run in another process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from touchfs.catalog.catalog import Catalog, Facts
from touchfs.core import jobs, progress
from touchfs.core.errors import FormatError, TouchfsError, UntrustedError
from touchfs.core.progress import Progress
from touchfs.core.urls import shown
from touchfs.dataset.shard import Shard
from touchfs.indexing.catalogs import make_catalog
from touchfs.indexing.far_shards import run_shards
from touchfs.indexing.place import make_place
from touchfs.indexing.preparing import is_notice
from touchfs.posix.atomic import is_taken, move, turn
from touchfs.posix.trust import check_trusted_file
from touchfs.registry.containers import Container
from touchfs.registry.open import KnownShard
from touchfs.shard.options import Options
from touchfs.source.fingerprint import Files

log = logging.getLogger(__name__)

# Bytes of a shard above which its samples may be visited by several processes: less takes a second in one.
_BIG = 1 << 23
# Beside a catalog, one that is made for its place by a task that gives way.
_GIVING_WAY_SUFFIX = ".background"
# Beside the place of a catalog, one without contents, until that is made.
_HEADERS_SUFFIX = ".headers"


@dataclass(frozen=True, slots=True)
class IndexTask:
    """A shard to index, whose files were seen with these fingerprints, and the path of its catalog. If it `raises`, it
    is an error that the shard cannot be read now. If it `gives_way`, others who want the shard do not wait for it.
    """

    path: str
    container: Container
    catalog: str
    options: Options
    force: bool
    full: bool
    files: Files | None
    raises: bool = False
    gives_way: bool = False


def has_catalog(shard: Shard, distrusted: list[str]) -> bool:
    """True if the catalog of a shard is there as it was written, and is trusted. Why it is not trusted is added.

    One of another size may be as good: another dataset that has the shard made it again, with the length of recordings.
    """
    try:
        return check_trusted_file(shard.catalog, shard.path).st_size == shard.catalog_size
    except UntrustedError as error:
        distrusted.append(str(error))
        return False
    except OSError:
        return False


class IndexedShard(NamedTuple):
    """A shard with its catalog, and whether that was made now. `untrusted` is the reason why one that was there is not
    trusted, or "". `is_damaged` is true if one was damaged.
    """

    shard: Shard
    is_new: bool
    untrusted: str
    is_damaged: bool


def index_shards(tasks: Sequence[IndexTask], executor: Executor | None, listener: Progress) -> Iterator[IndexedShard]:
    """Index shards, and yield for each the result of `index_shard`. `listener` is called with the bytes of shards."""
    sized = [(task, task.path, sum(file.size for file in (task.files or {}).values())) for task in tasks]
    # A shard with most of the bytes would keep one process busy when all others are done.
    whole_max = max(sum(size for _, _, size in sized) / 2, _BIG)
    big = [(task, size) for task, _, size in sized if size > whole_max]
    yield from run_shards(index_shard, [each for each in sized if each[2] <= whole_max], executor, listener)
    yield from jobs.run_sized(partial(index_shard, executor=executor), big, progress=listener)


def index_shard(task: IndexTask, executor: Executor | None = None) -> IndexedShard:
    """Index one shard, parts of it in the executor's processes, unless it has a catalog. If another process is at it,
    wait for that.
    """
    indexed = _index(task, executor)
    with suppress(OSError):  # it stays where nobody may write
        os.unlink(headers_of(task.catalog))
    return indexed


def _index(task: IndexTask, executor: Executor | None) -> IndexedShard:
    found = _look(task)
    if found.facts is not None:
        return found.indexed(task, found.facts, is_new=False)
    make_place(os.path.dirname(task.catalog))
    make = partial(
        make_catalog,
        task.path,
        options=task.options,
        files=found.files,
        container=task.container,
        full=task.full,
        raises=task.raises,
        adopt=not task.force,
        executor=executor,
    )
    if task.gives_way:
        made, is_new = _index_giving_way(task, make)
        return found.indexed(task, made, is_new=is_new)
    with turn(task.catalog):
        facts = None if task.force else _look(task).facts
        if facts is not None:
            return found.indexed(task, facts, is_new=False)
        facts = make(task.catalog)
    return found.indexed(task, facts, is_new=True)


def headers_of(catalog: str) -> str:
    """The path of the catalog without contents that may be there before a catalog is."""
    return catalog + _HEADERS_SUFFIX


def read_headers(task: IndexTask) -> IndexedShard:
    """A shard with its catalog, or as far as its headers tell, if that is not made yet."""
    headers = replace(task, catalog=headers_of(task.catalog))
    known, found = _known(task, headers)
    if known is not None:
        return known
    make_place(os.path.dirname(task.catalog))
    with turn(headers.catalog):
        # Who had the turn before has made one of them.
        known, _ = _known(task, headers)
        if known is not None:
            return known
        facts = make_catalog(
            task.path,
            headers.catalog,
            task.options,
            found.files,
            task.container,
            contents=False,
            raises=task.raises,
            adopt=True,
        )
        if not facts.contents:
            return found.indexed(headers, facts, is_new=False)
        with turn(task.catalog):  # there are no contents to be read
            move(headers.catalog, task.catalog)
    return found.indexed(task, facts, is_new=True)


def _known(*tasks: IndexTask) -> tuple[IndexedShard | None, _Look]:
    """The shard of the first of these tasks that has its catalog, if one has, and what was seen last."""
    for task in tasks:
        found = _look(task)
        if found.facts is not None:
            return found.indexed(task, found.facts, is_new=False), found
    return None, found


class _GivenUpError(Exception):
    """Somebody else indexes the shard."""


def _index_giving_way(task: IndexTask, make: Callable[[str], Facts]) -> tuple[Facts, bool]:
    """The facts of a shard, and whether its catalog was made here: beside its place, with no turn for that until it is
    complete. So nobody waits for a process of low priority. A shard is left to another process only once, as that may
    be killed.
    """
    made = task.catalog + _GIVING_WAY_SUFFIX

    def give_way() -> None:
        if is_taken(task.catalog):
            raise _GivenUpError

    with turn(made):
        try:
            if (known := _look(task).facts) is not None:
                return known, False
            try:
                with progress.watched(give_way):
                    facts = make(made)
            except _GivenUpError:
                with turn(task.catalog):
                    known = _look(task).facts
                if known is not None:
                    return known, False
                facts = make(made)
            with turn(task.catalog):
                if (known := _look(task).facts) is not None:
                    return known, False
                move(made, task.catalog)
            return facts, True
        finally:
            with suppress(FileNotFoundError):
                os.unlink(made)


class _Look(NamedTuple):
    """The facts of a catalog, None unless it is current. `files` are those of the shard, with what is known of them."""

    facts: Facts | None
    files: Files | None
    untrusted: str = ""
    is_damaged: bool = False

    def indexed(self, task: IndexTask, facts: Facts, *, is_new: bool) -> IndexedShard:
        shard = shard_of(task.path, task.container, task.catalog, facts)
        return IndexedShard(shard, is_new, self.untrusted, self.is_damaged)


def _look(task: IndexTask) -> _Look:
    try:
        known = Catalog(task.catalog, task.path).facts
    except UntrustedError as error:
        return _Look(None, task.files, untrusted=str(error))
    except FormatError:
        return _Look(None, task.files, is_damaged=True)
    except TouchfsError:
        return _Look(None, task.files)
    if task.files is None:
        return _Look(None, None)
    files = KnownShard(task.path, task.container, task.files).renewed(known.files).files
    is_current = not task.force and known.files == files and not (task.full and known.unmeasured)
    is_current &= known.contents or task.catalog.endswith(_HEADERS_SUFFIX)
    return _Look(replace(known, files=files) if is_current else None, files)


def index_again(options: Options, shard: Shard) -> None:
    """Make the catalog of a shard again, which was found to be damaged when the shard was used."""
    if not is_notice(shard):  # those are made by each opening
        warn_of_damage(shard.catalog)
        options = replace(options, partition=shard.partition)
        contents = not shard.catalog.endswith(_HEADERS_SUFFIX)
        full = contents and not shard.unmeasured
        make_catalog(shard.path, shard.catalog, options, shard.files, shard.container, full=full, contents=contents)


def warn_of_damage(path: str) -> None:
    """Write a line to the log about a file of the index that is made again."""
    log.warning("%s: is damaged, and made again", shown(path))


def shard_of(path: str, container: Container, catalog: str, facts: Facts) -> Shard:
    """The shard of a container that a catalog with these facts is of. It gets its name later."""
    return Shard(
        name="",
        path=path,
        container=container,
        files=dict(facts.files),
        catalog=catalog,
        samples=facts.samples,
        seconds=facts.seconds,
        size=facts.size,
        index_size=facts.index_size,
        catalog_size=os.path.getsize(catalog),
        damaged=facts.damaged,
        report=facts.report,
        report_of_segments=facts.report_of_segments,
        timed=facts.timed,
        endings=facts.endings,
        segments=facts.segments,
        unmeasured=facts.unmeasured,
        measured=facts.measured,
        regrouped=facts.regrouped,
    )
