"""touchfs index

Alone it makes touchfs's own catalogs; its subcommands make the indexes that other tools read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click

from touchfs import jobs
from touchfs.cli.console import PATH, Reading, source_options
from touchfs.cli.info import troubles
from touchfs.cli.progress import progress_bar, progress_option
from touchfs.cli.terminal import CPUS, executor, printable, say
from touchfs.dataset import counted
from touchfs.errors import SourceError, UsageError
from touchfs.format.tar.grouping import Dialect
from touchfs.indexing import open_dataset
from touchfs.peers import job as native
from touchfs.peers.job import Task, TaskResult
from touchfs.peers.pack import write_pack

_HELP = ("-h", "--help")
_DIALECTS = {"energon": Dialect.ENERGON, "nemo": Dialect.NEMO, "wds-v2": Dialect.WDS_V2}


class _Index(click.Group):
    """A group, where an argument that is none of its commands is a SOURCE."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        chosen = args[:1]
        if chosen and (chosen[0] in self.commands or chosen[0] in _HELP):
            return super().make_context(info_name, args, parent, **extra)
        return catalogs.make_context(info_name, args, parent, **extra)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        catalogs.format_options(context, formatter)
        self.format_commands(context, formatter)


jobs_option = click.option("--jobs", type=click.IntRange(1), default=CPUS, show_default=True, help="Processes to use.")


@click.command("index")
@click.argument("sources", metavar="SOURCE…", nargs=-1, required=True, type=PATH)
@jobs_option
@click.option("--force", is_flag=True, help="Index again what is indexed already.")
@click.option("--check", is_flag=True, help="Check other tools' indexes that are here; exit status 1 if one is wrong.")
@source_options
def catalogs(sources: tuple[str, ...], jobs: int, force: bool, check: bool, reading: Reading) -> int:
    """Index datasets, so that mounting them takes no time. What is indexed and has not changed is left as it is.

    \b
    Example:
      touchfs index --jobs 8 shards/data.list
    """
    if check:
        return _run(
            native.check_any,
            [task for source in sources for task in native.find_indexes(source)],
            jobs,
        )
    for source in sources:
        indexed: list[str] = []
        with executor(jobs) as pool, progress_bar(f"indexing {source}") as progress:
            dataset = open_dataset(
                source,
                options=reading.options,
                in_place=reading.in_place,
                force=force,
                executor=pool,
                progress=progress,
                preparing=progress,
                indexed_now=indexed.append,
            )
        news = f"{len(indexed)} indexed now" if indexed else "indexed already"
        say(f"{source}: {dataset}; {news}")
        for line in troubles(source, dataset):
            click.echo(printable(f"{source}: {line}"), err=True)
    return 0


@click.group("index", cls=_Index, subcommand_metavar="SOURCE… | COMMAND [ARGS]…")
def command() -> None:
    """Index datasets, so that mounting them takes no time. What is indexed and has not changed is left as it is.

    The commands make indexes for other tools; touchfs itself needs none of them. A SOURCE that is called like a
    command is ./SOURCE.

    \b
    Example:
      touchfs index --jobs 8 shards/data.list
    """


def _native(function: Callable[..., int]) -> Callable[..., int]:
    """The options of the commands that make indexes for other tools."""
    options = (
        progress_option,
        click.option("--force", is_flag=True, help="Write anew what is there already, right or wrong."),
        click.option("--check", is_flag=True, help="Write nothing; exit status 1 if an index is missing or wrong."),
        jobs_option,
        click.option("--output-dir", metavar="DIR", type=click.Path(), help="For the indexes. [default: the data's]"),
        click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path()),
    )
    for option in options:
        function = option(function)
    return function


@command.command("jsonl")
@_native
def jsonl(paths: tuple[str, ...], **options: Any) -> int:
    """Index JSONL files, for Lhotse, NeMo and Energon.

    PATH.idx is where each line of PATH begins, byte for byte as Lhotse writes it.

    \b
    Example:
      touchfs index jsonl data.jsonl
    """
    return _index([(path, None) for path in paths], **options)


@command.command("tar")
@_native
def tar(paths: tuple[str, ...], **options: Any) -> int:
    """Index tars of pairs, for Lhotse.

    PATH.idx is where each pair of members begins, byte for byte as Lhotse writes it, but always with the true size. A
    tar whose members are not pairs by their names is refused: Lhotse would read wrong pairs.

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

    Each .jsonl and each .tar in the directory PATH gets its index, as by the commands jsonl and tar.

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
    help="For whom: Megatron-Energon, NeMo (a stem a sample), NeMo's v2.",
)
def webdataset(paths: tuple[str, ...], dialect: str, **options: Any) -> int:
    """Index WebDataset tars, for Energon or NeMo.

    PATH.idx is where each sample begins. wds-v2 writes PATH.wds-v2.idx instead, and PATH.wds-v2.idx.meta.json, in
    which the tar is named as PATH names it here.

    \b
    Example:
      touchfs cp -r shards/:shards/000000000 speech
      tar -cf speech.tar speech
      touchfs index webdataset speech.tar
    """
    return _index([(path, _DIALECTS[dialect]) for path in paths], **options)


@command.command("pack")
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", metavar="X.idxpack", required=True, type=click.Path(), help="The pack.")
@click.option(
    "--dialect",
    type=click.Choice(["lhotse", "nemo", "wds-v2"]),
    default="nemo",
    show_default=True,
    help="What a sample of a tar is: a pair of members, those with a stem, those with a key.",
)
@jobs_option
@click.option("--check", is_flag=True, help="Write nothing; exit status 1 if the pack does not fit its shards.")
@click.option("--force", is_flag=True, help="Replace a pack that is there.")
@progress_option
def pack(paths: tuple[str, ...], output: str, dialect: str, jobs: int, check: bool, force: bool) -> int:
    """Index many files in one .idxpack, for Lhotse and NeMo.

    JSONL files are the collection ("manifest", "jsonl"), tars ("tar", "tar"), ("tar", "nemo_tar") or ("wds_tar",
    "wds_tar_v2"); each under the PATH that named it, or the list of them. A PATH may be a quoted pattern, as
    'cuts.{000000..000127}.jsonl'.

    \b
    Example:
      touchfs index pack data.jsonl -o data.idxpack
    """
    if check:
        return _run(native.check_any, [Task(output, output)], 1)
    if os.path.lexists(output) and not force:
        raise UsageError("already exists: --force replaces it", path=output)
    with executor(jobs if len(paths) > 1 else 1) as pool, progress_bar("indexing") as progress:
        samples = write_pack(paths, output, Dialect(dialect), executor=pool, progress=progress)
    say(f"{output}: {counted(samples, 'sample')}")
    return 0


def _index(
    found: Iterable[tuple[str, Dialect | None]], output_dir: str | None, jobs: int, check: bool, force: bool
) -> int:
    tasks = native.plan(found, output_dir)
    if check:
        return _run(native.check, tasks, jobs)
    if output_dir is not None:
        try:
            os.makedirs(output_dir, exist_ok=True)
        except OSError as error:
            raise SourceError(f"cannot be made: {error.strerror}", path=output_dir) from error
    return _run(partial(native.write, force=force), tasks, jobs)


def _run(work: Callable[[Task], TaskResult], tasks: list[Task], processes: int) -> int:
    """Do them all, say what came of each, and return the exit status."""
    status = 0
    with executor(max(min(processes, len(tasks)), 1)) as pool, progress_bar("indexing") as progress:
        sized = [(task, native.size_of(task)) for task in tasks]
        for done in jobs.run_sized(partial(native.run_task, work), sized, pool, progress=progress):
            if done.line:
                say(done.line)
            for line in done.remarks + done.wrong:
                click.echo(f"touchfs: {printable(line)}", err=True)
            status |= bool(done.wrong)
    return status
