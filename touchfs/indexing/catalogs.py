"""Make the catalog of a shard: run every view over every sample, name the files, and write the tables.

A shard that cannot be opened gets a catalog too, with one file, `ERROR.txt`. So does a shard with damaged samples,
beside the files of the others. Neither keeps the rest of a dataset from being served.

Each sample is visited once, in order. Its key, its rows and its names are kept in memory.
"""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import closing

from touchfs.catalog.catalog import Facts, write_catalog
from touchfs.core import progress
from touchfs.core.errors import (
    ChangedError,
    FormatError,
    LostWorkerError,
    MissingExtraError,
    NotFoundError,
    SourceError,
    TouchfsError,
)
from touchfs.core.location import Location
from touchfs.core.names import REPORT_STEM
from touchfs.indexing.report import THEN
from touchfs.registry.containers import Container
from touchfs.registry.directory.other_formats import misnamed
from touchfs.registry.open import KnownShard, container_at, shard_at
from touchfs.shard.options import DEFAULT, Options
from touchfs.shard.sample import ShardReader
from touchfs.source.data import Look
from touchfs.source.fingerprint import Files

# Shares of the time to index a shard; the rest is for writing the tables.
_OPENING, _SAMPLES, _NAMES = 0.25, 0.4, 0.25

# A shard may be as good as ever when it is tried again.
_NOT_NOW = (SourceError, NotFoundError, ChangedError)


def make_catalog(
    shard_path: str,
    catalog_path: str,
    options: Options = DEFAULT,
    files: Files | None = None,
    container: Container | None = None,
    *,
    full: bool = False,
    contents: bool = True,
    raises: bool = False,
    adopt: bool = False,
    executor: Executor | None = None,
) -> Facts:
    """Index one shard; with `full`, also the lengths of recordings that no header has; without `contents`, nothing for
    which files of samples must be read.

    `files` are its fingerprints and `container` is its kind, which are looked up by default; fingerprints of local
    files are looked up again. Each read of a file verifies its fingerprint. The processes of an `executor` visit parts
    of the shard if it is of a kind that can be divided. A damaged shard raises no error: its catalog reports the
    damage. So it does with a shard that cannot be read now, but with `raises` that is an error. With `adopt`, a tar
    takes its members from an index of another tool beside it, if one fits. Raises LostWorkerError if one of the
    processes dies.
    """
    from touchfs.indexing.visit_samples import (
        visit,  # with what reads samples, which a dataset that has its index needs not
    )

    look, known, files = Look(), files, files or {}
    try:
        # Looking at a shard of another store again would take several requests.
        if known is None or not Location.of(shard_path).is_url:
            found = shard_at(shard_path, look, container).with_lists(look).renewed(files)
        else:
            found = KnownShard(shard_path, container or container_at(shard_path, look), files)
        found = found.with_samples()
        files = found.files
        with progress.stage(_OPENING):
            opened = _opened(found, options, adopt=adopt)
        with closing(opened) as shard:
            size, index_size, regrouped = shard.size, shard.index_size, shard.regrouped
            with progress.stage(_SAMPLES, of=len(shard)):
                made = visit(shard, found, options, full=full, contents=contents, executor=executor)
            if made.damaged == made.samples and (made.samples or shard.problems):
                _check_name(found)
            reports = made.reports(shard_path, shard.problems, shard.remarks)
        with progress.stage(_NAMES, of=made.samples):
            tables = made.columns(reports)
    except LostWorkerError:  # says nothing about the shard
        raise
    except TouchfsError as error:
        if raises and isinstance(error, _NOT_NOW):
            raise
        return make_broken(catalog_path, error, files)
    facts = Facts(
        files=files,
        samples=made.samples,
        seconds=made.seconds,
        size=size,
        index_size=index_size,
        damaged=made.damaged,
        report=reports["shards"],
        report_of_segments=reports.get("segments", ""),
        keys_are_paths=found.container.keys_are_paths,
        timed=made.timed,
        endings=made.endings,
        segments=made.segments,
        unmeasured=made.unmeasured,
        measured=made.measured,
        regrouped=regrouped,
        contents=made.has_contents,
        labels=made.labels,
        classes=made.classes,
    )
    write_catalog(catalog_path, tables, made.kinds, facts)
    return facts


def _opened(found: KnownShard, options: Options, *, adopt: bool) -> ShardReader:
    try:
        return found.open_to_index(options) if adopt else found.open(options)
    except FormatError:
        _check_name(found)
        raise


def _check_name(found: KnownShard) -> None:
    """Raise FormatError, naming what it is, if a shard of which nothing can be read is named like another kind."""
    if found.container.is_single and (what := misnamed(found.path)):
        raise FormatError(f"is {what}", path=found.path)


def make_broken(catalog_path: str, error: TouchfsError, files: Files) -> Facts:
    """Write the catalog of a shard that cannot be served."""
    remedy = "Repair it or make it again"
    if isinstance(error, (*_NOT_NOW, MissingExtraError)):
        files = {}  # matches no shard, so that the next opening tries again
        remedy = "Fix the cause"
    report = f"This shard cannot be served.\n\n{error}\n\n{remedy}, {THEN}\n"
    return make_notice(catalog_path, report, files)


def make_notice(catalog_path: str, text: str, files: Files, stem: str = REPORT_STEM) -> Facts:
    """Write a catalog that shows only a text, as `stem`.txt."""
    from touchfs.indexing.tables.sample_tables import SampleTables  # as in `make_catalog`

    made = SampleTables()
    facts = Facts(files, 0, 0.0, 0, 0, 0, text if stem == REPORT_STEM else "")
    write_catalog(catalog_path, made.columns({"shards": text}, stem), made.kinds, facts)
    return facts
