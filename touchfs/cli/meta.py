"""touchfs meta"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from functools import partial

import click

from touchfs.bulk.annotations import Annotations, get_annotations, put_annotations
from touchfs.bulk.data_list import check_inside
from touchfs.cli.command_group import CommandGroup
from touchfs.cli.dataset_argument import PATH
from touchfs.cli.dataset_options import split_option
from touchfs.cli.limit_options import limit_options
from touchfs.cli.remote_options import source_options
from touchfs.cli.terminal import json_option, say
from touchfs.cli.workers import Workers, executor, workers_option
from touchfs.containers.touchnet.reader import fingerprints
from touchfs.core.errors import NotFoundError
from touchfs.dataset import counted
from touchfs.format.idx import INDEX_SUFFIX, METAINFO_NAMES
from touchfs.limits import Limits
from touchfs.registry.find import find_shards


@click.group("meta", cls=CommandGroup)
def command() -> None:
    """Extract and replace annotations of TouchNet shards.

    \b
    Example:
      touchfs meta get shards/ | sed 's/colour/color/g' | touchfs meta put shards/
    """


@command.command("get")
@click.argument("path", metavar="DATASET", type=PATH)
@split_option
@source_options
@limit_options("json")
def get(path: str, split: str | None, limits: Limits) -> None:
    """Write the metainfo of all samples to stdout.

    The output has one line per sample, in order. The bytes are the stored ones, except that metainfo of several lines
    is joined into one.

    \b
    Example:
      touchfs meta get shards/ > samples.jsonl
    """
    for line in get_annotations(_shards(path, split, limits)):
        sys.stdout.buffer.write(line + b"\n")


@command.command("put")
@click.argument("path", metavar="DATASET", type=PATH)
@click.option("--ignore-unknown", is_flag=True, help="Ignore lines whose key no sample has.")
@click.option("--keep-missing", is_flag=True, help="Leave samples without a line unchanged.")
@json_option
@split_option
@workers_option()
@limit_options("json")
def put(
    path: str,
    ignore_unknown: bool,
    keep_missing: bool,
    as_json: bool,
    split: str | None,
    workers: Workers,
    limits: Limits,
) -> None:
    """Replace the metainfo of samples by lines from stdin.

    Each line is a JSON object, and belongs to the sample with its key; if a key is repeated, the first line belongs to
    the first sample. Nothing is written before all lines are read and match. Then each changed shard is replaced as a
    whole, by a directory with the same recordings (hard links) and new metainfo. A process whose current directory is a
    shard must enter it again. To continue after an interruption, run the same command again.

    \b
    Example:
      touchfs meta get shards/ > samples.jsonl
      touchfs meta put shards/ < samples.jsonl
    """
    if sys.stdin is None:
        raise click.UsageError("stdin is closed, but the lines are read from it.")
    lines = iter(partial(sys.stdin.buffer.readline, limits.json + len(b"\r\n")), b"")
    shards = _shards(path, split, limits)
    check_inside(path, (shard.path for shard in shards))
    with executor(workers, [path], [os.path.dirname(shard.real_path) for shard in shards]) as pool:
        report = put_annotations(
            shards,
            lines,
            ignore_unknown=ignore_unknown,
            keep_missing=keep_missing,
            limits=limits,
            executor=pool,
        )
    if as_json:
        say(json.dumps(asdict(report)))
        return
    ignored = f", {counted(report.ignored, 'line')} ignored" if report.ignored else ""
    kept = f", {counted(report.kept, 'sample')} without a line" if report.kept else ""
    say(f"{path}: {counted(report.samples, 'sample')} changed in {counted(report.shards, 'shard')}{ignored}{kept}")


def _shards(dataset: str, split: str | None, limits: Limits) -> list[Annotations]:
    return [Annotations(path, _modality(path), limits) for path in find_shards(dataset, split=split)]


def _modality(path: str) -> str:
    names = () if os.path.isfile(path) else fingerprints(path)
    for name in names:
        if name.endswith(INDEX_SUFFIX) and name.removesuffix(INDEX_SUFFIX) in METAINFO_NAMES:
            return name.removesuffix(INDEX_SUFFIX)
    raise NotFoundError(f"no metainfo{INDEX_SUFFIX} here: only TouchNet shards have annotations", path=path)
