"""touchfs index

Without a subcommand it makes touchfs's own catalogs; its subcommands make the indexes that other tools read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from touchfs.cli.command import HELP_ALL, Command
from touchfs.cli.dataset_argument import PATH
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.info import error_lines
from touchfs.cli.progress import progress_bar, progress_option
from touchfs.cli.terminal import complain, json_option, say, say_rows
from touchfs.cli.workers import HERE, Workers, executor, workers_option
from touchfs.containers.tar.layout.grouping import Dialect
from touchfs.core import jobs
from touchfs.core.errors import SourceError, UsageError
from touchfs.core.location import Location
from touchfs.core.urls import shown
from touchfs.dataset import counted
from touchfs.idxpack.write import write_pack
from touchfs.indexing import open_dataset
from touchfs.indexing.place import index_place, make_place
from touchfs.indexing.published.fetch import published_beside
from touchfs.indexing.published.publish import publish_index
from touchfs.indexing.serving import why_unservable
from touchfs.peers import job as native
from touchfs.peers.job import Task, TaskResult
from touchfs.source.data import find_type
from touchfs.source.upload import check_writable

_HELP = ("-h", "--help", HELP_ALL.opts[0])
_DIALECTS = {"energon": Dialect.ENERGON, "nemo": Dialect.NEMO, "wds-v2": Dialect.WDS_V2}


class _Index(click.Group):
    """A group in which a first argument that is not a subcommand is a DATASET."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        chosen = args[:1]
        if chosen and (chosen[0] in self.commands or chosen[0] in _HELP):
            return super().make_context(info_name, args, parent, **extra)
        return catalogs.make_context(info_name, args, parent, **extra)

    def get_params(self, context: click.Context) -> list[click.Parameter]:
        return [HELP_ALL, *super().get_params(context)]

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        catalogs.format_options(context, formatter)
        self.format_commands(context, formatter)


@click.command("index", cls=Command)
@click.argument("paths", metavar="DATASET…", nargs=-1, required=True, type=PATH)
@workers_option()
@click.option("--force", is_flag=True, help="Index again even if nothing has changed.")
@click.option("--full", is_flag=True, help="Read recordings whose length no header has, such as MP3 and Opus.")
@click.option("--check", is_flag=True, help="Check indexes of other tools in DATASET; exit status 1 if one is wrong.")
@click.option(
    "--output",
    metavar="PREFIX",
    help="Also write the index to this directory or URL, from which --index reads it. [with --in-place: beside a URL]",
)
@json_option
@dataset_options
def catalogs(
    paths: tuple[str, ...],
    workers: Workers,
    force: bool,
    full: bool,
    check: bool,
    output: str | None,
    as_json: bool,
    read_options: ReadOptions,
) -> int:
    """Index datasets, so that mounting them takes no time. Unchanged shards are not indexed again.

    Without --full, the length of an MP3 and the like is found when one of its segments is needed. The exit status is 1
    if a shard has errors; the others are indexed.

    The index is in your cache directory. With --output, others can have it: a mount of a URL finds by itself
    what `touchfs index --in-place URL` has written to .touchfs-index/ there.

    \b
    Example:
      touchfs index --jobs 8 shards/data.list
    """
    if check:
        return _run(
            native.check_any,
            [task for path in paths for task in native.find_indexes(path)],
            workers,
            as_json=as_json,
        )
    if output is not None and len(paths) > 1:
        raise UsageError("--output is for the index of one DATASET")
    status, rows = 0, list[dict[str, Any]]()
    for path in paths:
        location = Location.parse(path)
        prefix = _prefix(location, output, read_options)
        if prefix and read_options.options.split is not None:
            raise UsageError("an index for others is of all splits: omit --split")
        in_place = read_options.in_place and not location.is_url
        make_place(place := index_place(location, in_place=in_place))
        indexed: list[str] = []
        with executor(workers, [path], [place]) as pool, progress_bar(f"indexing {path}") as progress:
            dataset = open_dataset(
                path,
                options=read_options.options,
                in_place=in_place,
                must_keep=True,
                force=force,
                full=full,
                executor=pool,
                progress=progress,
                preparing=progress,
                finding_items=progress,
                indexed_now=indexed.append,
            )
        news = f"{len(indexed)} indexed now" if indexed else "indexed already"
        rows.append({"dataset": shown(path), "indexed_now": len(indexed), **dataset.facts()})
        if not as_json:
            say(f"{shown(path)}: {dataset}; {news}")
        if prefix:
            written = publish_index(dataset, read_options.options, prefix)
            if not as_json:
                say(f"{shown(output or prefix)}: index of {counted(written, 'shard')}")
        for line in error_lines(path, dataset):
            complain(f"{path}: {line}")
        if why_unservable(dataset, strict=True):
            status = 1
    if as_json:
        say_rows(rows)
    return status


def _prefix(source: Location, output: str | None, read_options: ReadOptions) -> str:
    """The directory or URL to which the index is written for others, or "". Raises UsageError if it is not writable."""
    if output is None and not (read_options.in_place and source.is_url):
        return ""
    target = (source if output is None else Location.parse(output)).absolute
    check_writable(target.path)
    return published_beside(target) if output is None else target.path


@click.group("index", cls=_Index, subcommand_metavar="DATASET… | COMMAND [ARGS]…")
def command() -> None:
    """Index datasets, so that mounting them takes no time. Unchanged shards are not indexed again.

    The commands below make indexes for other tools; touchfs itself does not need them. If a DATASET has the name of a
    command, write ./DATASET.

    \b
    Example:
      touchfs index --jobs 8 shards/data.list
    """


def _native(function: Callable[..., int]) -> Callable[..., int]:
    options = (
        progress_option,
        click.option("--force", is_flag=True, help="Overwrite existing indexes, even correct ones."),
        click.option("--check", is_flag=True, help="Write nothing; exit status 1 if an index is missing or wrong."),
        json_option,
        workers_option(),
        click.option(
            "--output-dir", metavar="DIR", type=click.Path(), help="Directory for indexes. [default: beside the data]"
        ),
        click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path()),
    )
    for option in options:
        function = option(function)
    return function


@command.command("jsonl")
@_native
def jsonl(paths: tuple[str, ...], **options: Any) -> int:
    """Index JSONL files, for Lhotse, NeMo and Energon.

    PATH.idx gets the offset of each line of PATH, in the same bytes as Lhotse writes.

    \b
    Example:
      touchfs index jsonl data.jsonl
    """
    return _index([(path, None) for path in paths], **options)


@command.command("tar")
@_native
def tar(paths: tuple[str, ...], **options: Any) -> int:
    """Index tars of pairs, for Lhotse.

    PATH.idx gets the offset of each pair of members, in the same bytes as Lhotse writes, but always with the true size.
    A tar whose members are not pairs by their names is an error: Lhotse would read wrong pairs.

    \b
    Example:
      touchfs cp -r shards/:shards/000000000 speech
      tar -cf speech.tar speech/numbers.wav speech/numbers.json
      touchfs index tar speech.tar
    """
    return _index([(path, Dialect.LHOTSE) for path in paths], **options)


@command.command("shar")
@_native
def shar(paths: tuple[str, ...], **options: Any) -> int:
    """Index Shar directories, for Lhotse.

    Each .jsonl and each .tar in the directory PATH gets an index, as made by the commands jsonl and tar.

    \b
    Example:
      mkdir shar
      cp data.jsonl shar/cuts.000000.jsonl
      touchfs index shar shar
    """
    return _index([found for path in paths for found in native.find_shar(path)], **options)


@command.command("webdataset")
@_native
@click.option(
    "--dialect",
    type=click.Choice(list(_DIALECTS)),
    default="energon",
    show_default=True,
    help="Reader of the index: Megatron-Energon, NeMo (one sample per stem), or NeMo's WebDataset v2.",
)
def webdataset(paths: tuple[str, ...], dialect: str, **options: Any) -> int:
    """Index WebDataset tars, for Energon or NeMo.

    PATH.idx gets the offset of each sample. wds-v2 writes PATH.wds-v2.idx and PATH.wds-v2.idx.meta.json instead; the
    latter names the tar as PATH, just as you write it.

    \b
    Example:
      touchfs cp -r shards/:shards/000000000 speech
      tar -cf speech.tar speech
      touchfs index webdataset speech.tar
    """
    return _index([(path, _DIALECTS[dialect]) for path in paths], **options)


@command.command("pack")
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", metavar="X.idxpack", required=True, type=click.Path(), help="File to write.")
@click.option(
    "--dialect",
    type=click.Choice(["lhotse", "nemo", "wds-v2"]),
    default="nemo",
    show_default=True,
    help="A sample of a tar is a pair of members (lhotse), all with one stem (nemo), or all with one key (wds-v2).",
)
@workers_option()
@click.option("--check", is_flag=True, help="Write nothing; exit status 1 if the pack does not match its shards.")
@click.option("--force", is_flag=True, help="Replace an existing pack.")
@json_option
@progress_option
def pack(
    paths: tuple[str, ...], output: str, dialect: str, workers: Workers, check: bool, force: bool, as_json: bool
) -> int:
    """Index many files in one .idxpack, for Lhotse and NeMo.

    JSONL files become the collection ("manifest", "jsonl"), tars ("tar", "tar"), ("tar", "nemo_tar") or ("wds_tar",
    "wds_tar_v2"). The key of a collection is the PATH that names it, or the list of PATHs. A PATH may be a quoted
    pattern, for example 'cuts.{000000..000127}.jsonl'.

    \b
    Example:
      touchfs index pack data.jsonl -o data.idxpack
    """
    if check:
        return _run(native.check_any, [Task(output, output)], HERE, as_json=as_json)
    if (os.path.lexists(output) or find_type(output) is not None) and not force:
        raise UsageError("already exists: --force replaces it", path=output)
    with executor(workers.at_most(len(paths)), paths) as pool, progress_bar("indexing") as progress:
        samples = write_pack(paths, output, Dialect(dialect), executor=pool, progress=progress)
    line = f"{output}: {counted(samples, 'sample')}"
    if as_json:
        say_rows([{"index": shown(output), **asdict(TaskResult(line))}])
    else:
        say(line)
    return 0


def _index(
    found: Iterable[tuple[str, Dialect | None]],
    output_dir: str | None,
    workers: Workers,
    check: bool,
    force: bool,
    as_json: bool,
) -> int:
    tasks = native.plan(found, output_dir)
    if check:
        return _run(native.check, tasks, workers, as_json=as_json)
    if output_dir is not None and Location.of(output_dir).is_url:
        check_writable(output_dir)
    elif output_dir is not None:
        try:
            os.makedirs(output_dir, exist_ok=True)
        except OSError as error:
            raise SourceError(f"cannot create the directory: {error.strerror}", path=output_dir) from error
    writes = [task.index for task in tasks]
    return _run(partial(native.write, force=force), tasks, workers, writes, as_json=as_json)


def _run(
    work: Callable[[Task], TaskResult],
    tasks: list[Task],
    workers: Workers,
    writes: Sequence[str] = (),
    *,
    as_json: bool,
) -> int:
    """Run all tasks, which write at the paths `writes`, print the result of each, and return the exit status."""
    status, rows = 0, list[dict[str, Any]]()
    data = [task.data for task in tasks]
    with executor(workers.at_most(len(tasks)), data, writes) as pool, progress_bar("indexing") as progress:
        sized = [(native.task_there(pool, task), native.size_of(task)) for task in tasks]
        done = jobs.run_sized(partial(native.run_task, work), sized, pool, progress=progress)
        for task, result in zip(tasks, done, strict=True):
            rows.append({"index": shown(task.index), **asdict(result)})
            if result.line and not as_json:
                say(result.line)
            for line in result.remarks + result.wrong:
                complain(f"touchfs: {line}")
            status |= bool(result.wrong)
    if as_json:
        say_rows(rows)
    return status
