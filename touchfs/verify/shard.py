"""Verify one shard: its index against its data, then every file of it, and each against its checksum if it has one."""

from __future__ import annotations

import filecmp
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core import progress
from touchfs.core.errors import LostWorkerError, MissingExtraError, TouchfsError
from touchfs.core.names import hex_digest
from touchfs.dataset.shard import Shard
from touchfs.format.arrow.mapped_columns import BinaryColumn, Column
from touchfs.format.arrow.mapped_file import Batch, parse_file
from touchfs.indexing.catalogs import make_catalog
from touchfs.indexing.preparing import is_notice
from touchfs.shard.options import Options
from touchfs.source.mapped import map_file
from touchfs.verify.checksums import checksums_path, load_checksums, save_checksums
from touchfs.verify.reading import VIEW, open_alone, read_files

# The share of the time to index a shard again; the rest is for reading it.
_INDEXING = 0.2
# Problems of a shard that are listed one by one.
PROBLEMS_LISTED = 1000


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """A shard to be verified, and the options with which it was indexed."""

    shard: Shard
    options: Options


@dataclass(slots=True)
class ShardVerdict:
    """The result of verifying a shard: the files and bytes that were read, and the files whose checksum was known.

    There is a line for each problem, at most `PROBLEMS_LISTED` of `damaged`. `name` is the path of the shard below
    `shards/`. `subject` names the shard or its part, as
    `subject_of` returns it. `before` counts shards that an earlier call has read.
    """

    name: str
    subject: str
    files: int = 0
    size: int = 0
    checked: int = 0
    damaged: int = 0
    problems: list[str] = field(default_factory=list)
    before: int = 0

    def tell(self, path: str, problem: str) -> None:
        """Add a problem of what is at a path."""
        self.damaged += 1
        if len(self.problems) < PROBLEMS_LISTED:
            self.problems.append(f"{path}: {problem}")


def verify_shard(task: VerifyTask) -> ShardVerdict:
    """Verify a shard. All that is wrong with it is in the verdict. Raises LostWorkerError or MissingExtraError."""
    shard = task.shard
    verdict = ShardVerdict(shard.directory + shard.name, subject_of(shard))
    whole = shard.path_in(VIEW)
    if is_notice(shard):
        verdict.tell(whole, " ".join(shard.report.split()) or "it is not decompressed, so it was not read")
    else:
        for view, report in shard.reports.items():
            verdict.tell(shard.path_in(view), " ".join(report.split()))
    try:
        opened = open_alone(shard, task.options.limits)
        with progress.stage(_INDEXING):
            _compare_index(task, verdict, whole)
        known = _known_checksums(shard, verdict, whole)
        if known is not None and len(known) != opened.tables[VIEW].rows:
            verdict.tell(
                whole, "its checksums are of other files: write them again with `touchfs verify --write --force`"
            )
            known = None
        with progress.stage(1 - _INDEXING, of=max(shard.size, 1)):
            for found in read_files(opened, progress.advance, with_checksums=known is not None):
                verdict.files += 1
                verdict.size += found.size
                if found.problem:
                    verdict.tell(found.path, found.problem)
                elif known is not None:
                    verdict.checked += 1
                    if found.checksum != known[found.row]:
                        problem = (
                            f"its {found.size} bytes have the checksum {found.checksum:08x}, not {known[found.row]:08x}"
                        )
                        verdict.tell(found.path, problem)
    except (LostWorkerError, MissingExtraError):
        raise
    except TouchfsError as error:
        verdict.tell(whole, str(error))
    return verdict


def subject_of(shard: Shard) -> str:
    """A hash of what a verdict is about: the shard, its catalog and its checksums, in the versions they have now."""
    facts = [shard.identity]
    for path in (shard.catalog, checksums_path(shard)):
        with suppress(OSError):
            found = os.stat(path)
            facts.append(f"{found.st_ino} {found.st_size} {found.st_mtime_ns}")
    return hex_digest("\0".join(facts).encode())


def _known_checksums(shard: Shard, verdict: ShardVerdict, whole: str) -> NDArray[np.integer[Any]] | None:
    """The checksums of a shard; None if there are none that can be used. Why they cannot is told."""
    try:
        known = load_checksums(shard)
    except TouchfsError as error:
        verdict.tell(whole, f"its checksums are not used: {error}")
        return None
    if known is None and os.path.lexists(checksums_path(shard)):
        problem = (
            "was changed after its checksums were written: if that is right, `touchfs verify --write` writes new ones"
        )
        verdict.tell(whole, problem)
    return known


def _compare_index(task: VerifyTask, verdict: ShardVerdict, whole: str) -> None:
    """Index the shard again, and compare: the same data gives the same catalog.

    Files of this machine have samples, so that some damage is found where there are no checksums.
    """
    shard = task.shard
    with tempfile.TemporaryDirectory(prefix="touchfs-verify-") as place:
        again = os.path.join(place, os.path.basename(shard.base_catalog))
        options = replace(task.options, partition=shard.partition)
        facts = make_catalog(shard.path, again, options, shard.files or None, full=not shard.unmeasured)
        if dict(facts.files) != shard.files:
            verdict.tell(whole, "was changed since it was indexed: `touchfs index` indexes it again")
            return
        if filecmp.cmp(again, shard.base_catalog, shallow=False):
            return
        if any(file.sample != shard.files[name].sample for name, file in facts.files.items()):
            verdict.tell(whole, "some of its bytes are not those that were indexed")
        if not _have_same_rows(again, shard.base_catalog):
            verdict.tell(whole, "its index does not fit its data: `touchfs index --force` makes it again")


def _have_same_rows(first: str, second: str) -> bool:
    """True if all tables of two catalogs are the same, whatever their facts about the shard are."""
    with open(first, "rb") as made, open(second, "rb") as stored:
        one, other = (parse_file(map_file(file.fileno())) for file in (made, stored))
    return one.columns == other.columns and all(
        a.rows == b.rows and all(_bytes_of(a.columns[name]) == _bytes_of(b.columns[name]) for name in one.columns)
        for a, b in zip_longest(one.batches, other.batches, fillvalue=Batch(-1, {}))
    )


def _bytes_of(column: Column) -> tuple[bytes, bytes]:
    if isinstance(column, BinaryColumn):
        return column.offsets.tobytes(), bytes(column.data)
    return column.tobytes(), b""


def checksum_shard(task: VerifyTask) -> ShardVerdict:
    """Write the checksums of a shard, unless a file of it cannot be read. Raises as `verify_shard`, SourceError too."""
    shard = task.shard
    verdict = ShardVerdict(shard.directory + shard.name, subject_of(shard))
    try:
        opened = open_alone(shard, task.options.limits)
        checksums = np.zeros(opened.tables[VIEW].rows, np.uint32)
        with progress.stage(1, of=max(shard.size, 1)):
            for found in read_files(opened, progress.advance, with_checksums=True):
                verdict.files += 1
                verdict.size += found.size
                checksums[found.row] = found.checksum
                if found.problem:
                    verdict.tell(found.path, found.problem)
    except (LostWorkerError, MissingExtraError):
        raise
    except TouchfsError as error:
        verdict.tell(shard.path_in(VIEW), str(error))
        return verdict
    if not verdict.damaged:
        save_checksums(shard, checksums)
        verdict.checked = verdict.files
    return verdict
