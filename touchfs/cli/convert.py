"""touchfs convert"""

from __future__ import annotations

from array import array
from inspect import signature
from typing import Any

import click
from click.core import ParameterSource

from touchfs.bulk.chosen import Choice, ChosenOfShard
from touchfs.bulk.convert.job import TARGETS, convert
from touchfs.bulk.convert.target import Target
from touchfs.bulk.convert.touchnet import DATATYPES
from touchfs.bulk.data_list import check_apart, check_output, is_relative_to_itself, remark
from touchfs.bulk.tables.job import pack_table
from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import datasets_argument, open_indexed
from touchfs.cli.dataset_options import (
    ReadOptions,
    audio_root_option,
    in_place_option,
    key_rule_option,
    overlay_option,
    sample_rate_option,
    segments_option,
    split_option,
    table_options,
    with_audio_root,
)
from touchfs.cli.interleave import KindOfShards, interleave_shards
from touchfs.cli.limit_options import limit_options
from touchfs.cli.progress import progress_bar, progress_option
from touchfs.cli.remote_options import source_options
from touchfs.cli.selection_options import SAMPLES, selection_options
from touchfs.cli.tables import KINDS, print_report, settings_of, storage_options
from touchfs.cli.terminal import complain, say
from touchfs.cli.workers import Workers, executor, workers_option
from touchfs.core.errors import UsageError
from touchfs.dataset import counted
from touchfs.features import Features
from touchfs.indexing.overlays.named import has_overlays
from touchfs.limits import Limits
from touchfs.shard.options import Options

SAMPLES_PER_SHARD = 1000
# The settings of targets that have options of other names.
_SETTINGS = {
    "shard_size": "bytes_per_shard",
    "index": "create_index",
    "audio_resample": "rate",
    "resample_in": "arithmetic",
}
_INTERLEAVED = {"tar": "wds", "parquet": "parquet"}
_TABLE_OPTIONS = ("batch_size", "shard_size", "compression", "payload")
_TARGET_LINES = "\n".join(f"  {name:<8} {target.words}" for name, target in TARGETS.items())
_HELP = f"""Write a dataset as shards of another kind.

Samples keep their order and their keys.

\b
{_TARGET_LINES}
  arrow    Arrow shards: the columns of a table, else one for each kind of file
  lance    a Lance dataset with the same columns
  parquet  Parquet files with the same columns

--features names other columns for arrow, lance and parquet. The columns of --overlay are written as `touchfs ls` shows
them, or as fields where a target has no such files.

If the target cannot store a field, the error names the sample. In archives a dot in the last part of a key becomes %2E,
and a repeated key gets ~2, ~3, …. To continue after an interruption, run the same command again.

--select, --where and --take choose what is converted, as `touchfs iterate` and the spec of an iterator have them.

\b
Example:
  touchfs convert shards/ tars/ --to tar
  touchfs convert tars/ shar/ --to shar
  touchfs convert shards/ clips/ --to tar --select segments --where 'duration > 0.5' --take 3
"""


@click.command("convert", cls=Command, help=_HELP)
@datasets_argument("path", "DATASET")
@click.argument("output", metavar="OUT", type=click.Path())
@click.option("--to", "kind", type=KindOfShards([*TARGETS, *KINDS]), required=True, help="Kind of shards to write.")
@click.option(
    "--num-utt-per-shard",
    type=click.IntRange(1),
    help=f"Samples per shard. [default: {SAMPLES_PER_SHARD}, with --shard-size no limit]",
)
@click.option(
    "--shard-size",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Not touchnet, shar and lance: begin a new shard after this many bytes.",
)
@click.option("--index", is_flag=True, default=None, help="tar: also write indexes OUT/000000.tar.idx, …")
@click.option("--datatypes", type=click.Choice(DATATYPES), help=f"touchnet: contents. [default: {DATATYPES[0]}]")
@click.option(
    "--audio-resample",
    type=click.IntRange(1),
    metavar="HZ",
    help="touchnet: sample rate. [default: that of the recording]",
)
@click.option(
    "--resample-in",
    type=click.Choice(["s16", "float"]),
    help="touchnet: as for `touchfs pack touchnet`. [default: s16]",
)
@click.option(
    "--kind",
    "sample_kind",
    type=click.Choice(["interleaved"]),
    help="tar, parquet: convert texts and images in reading order, as `touchfs interleave` does.",
)
@selection_options
@click.option("--take", type=click.IntRange(0), metavar="N", help="Only the first N of these samples.")
@storage_options(*KINDS)
@click.option("--leave-out", multiple=True, metavar="EXTENSION", help="Omit the files with this extension.")
@click.option(
    "--skip-bad", is_flag=True, help="Skip samples that cannot be converted, and list them in OUT/skipped.jsonl."
)
@sample_rate_option
@key_rule_option
@segments_option
@audio_root_option
@split_option
@overlay_option
@table_options
@source_options
@in_place_option
@workers_option()
@limit_options("json", "decoded", "members", "decode_seconds")
@progress_option
def command(
    path: str,
    output: str,
    kind: str,
    sample_kind: str | None,
    select: str,
    where: str | None,
    take: int | None,
    num_utt_per_shard: int | None,
    leave_out: tuple[str, ...],
    skip_bad: bool,
    sample_rate: int | None,
    key_rule: str,
    segments: str,
    audio_root: str | None,
    split: str | None,
    overlays: tuple[str, ...],
    key_column: str | None,
    layout: str | None,
    features: str | None,
    in_place: bool,
    workers: Workers,
    limits: Limits,
    **target_options: Any,
) -> int:
    """Parse the options, convert, and print what was written."""
    options = Options(
        sample_rate,
        key_rule,
        limits=with_audio_root(limits, audio_root),
        segments=segments,
        key_column=key_column,
        layout=layout,
        features=features,
        split=split,
        overlays=overlays,
    )
    given = {name: value for name, value in target_options.items() if value is not None}
    if sample_kind is not None:
        others = given or num_utt_per_shard or leave_out or skip_bad or where or take is not None or select != SAMPLES
        if kind not in _INTERLEAVED or others or split is not None or overlays:
            raise UsageError(
                "--kind interleaved takes --to tar or parquet, and no other options: use touchfs interleave"
            )
        return interleave_shards(path, output, _INTERLEAVED[kind], limits=limits, workers=workers)
    if kind in KINDS:
        if num_utt_per_shard is not None:
            raise UsageError(f"--num-utt-per-shard cannot be used with --to {kind}: use --shard-size or --batch-size")
        _check_one_process(kind, workers)
        choice = _choice(path, output, select, where, take, ReadOptions(options, in_place))
        _convert_to_table(path, output, kind, leave_out, skip_bad, options, given, choice)
        return 0
    if workers.scheduler is not None and select.partition("/")[0] not in ("samples", "shards"):
        raise UsageError(f"--dask cannot be used with --select {select}: use --jobs")
    choice = _choice(path, output, select, where, take, ReadOptions(options, in_place))
    if workers.scheduler is not None and choice is not None and any(choice.overlaid):
        raise UsageError("--dask cannot be used with overlays: use --jobs, or --overlay none")
    target = _target(kind, num_utt_per_shard, limits, given)
    with executor(workers, [path], [output]) as pool, progress_bar("converting") as progress:
        report = convert(
            path,
            output,
            target,
            options=options,
            leave_out=leave_out,
            skip_bad=skip_bad,
            choice=choice,
            executor=pool,
            progress=progress,
        )
    skipped = f", {report.skipped} skipped: see {output}/skipped.jsonl" if report.skipped else ""
    say(f"{output}: {counted(report.shards, 'shard')}, {counted(report.samples, 'sample')}{skipped}")
    if not report.shards:
        complain(f"touchfs: {output}: has no shards, because there are no samples")
    if kind == "touchnet" and is_relative_to_itself(output):
        say(remark(output))
    return 0


def _choice(
    path: str, output: str, select: str, where: str | None, take: int | None, read_options: ReadOptions
) -> Choice | None:
    """The samples that the options choose, with the overlays' files; None for the whole dataset as it is stored.
    Only a choice and overlays need the index.
    """
    options = read_options.options
    is_all = where is None and take is None and select == SAMPLES
    if is_all and not has_overlays(path, options):
        return None
    from touchfs.dataset.samples import DatasetSamples
    from touchfs.select.ids.names import open_file
    from touchfs.select.selection import base_of
    from touchfs.select.selector import Selector
    from touchfs.select.survivors import survivors_directory

    check_output(output)
    check_apart(path, output)
    dataset = open_indexed(path, read_options)
    overlaid = [shard.catalog if shard.catalog != shard.base_catalog else "" for shard in dataset.shards]
    overlays = {"overlay": [*options.overlays] or None}
    if is_all:
        return Choice(None, overlays, overlaid)
    samples, positions = base_of(Selector(dataset, survivors_directory(), open_ids=open_file).select(select, where))
    parts = None if isinstance(samples, DatasetSamples) else samples
    shards = [
        ChosenOfShard(array("q", (found if parts else found - start).tolist()), parts)
        for start, found in samples.in_shards(positions[:take])
    ]
    return Choice(shards, {"select": select, "where": where, "take": take, **overlays}, overlaid)


def _check_one_process(kind: str, workers: Workers) -> None:
    """Raise UsageError if several workers are asked for: the rows of a table are written in order, by one process."""
    source = click.get_current_context().get_parameter_source("processes")
    if workers.scheduler is not None or (workers.processes > 1 and source is not ParameterSource.DEFAULT):
        raise UsageError(f"--jobs and --dask cannot be used with --to {kind}, as one process writes a table: omit them")


def _convert_to_table(
    path: str,
    output: str,
    kind: str,
    leave_out: tuple[str, ...],
    skip_bad: bool,
    options: Options,
    given: dict[str, Any],
    choice: Choice | None,
) -> None:
    for name in given.keys() - _TABLE_OPTIONS:
        raise UsageError(f"--{name.replace('_', '-')} cannot be used with --to {kind}")
    settings = settings_of(kind, given)
    with progress_bar("converting") as progress:
        report = pack_table(
            path,
            output,
            settings,
            features=None if options.features is None else Features.from_json(options.features),
            options=options,
            leave_out=leave_out,
            skip_bad=skip_bad,
            choice=choice,
            progress=progress,
        )
    print_report(output, report)
    if not report.rows:
        complain(f"touchfs: {output}: has no rows, because there are no samples")


def _target(kind: str, samples_per_shard: int | None, limits: Limits, options: dict[str, Any]) -> Target:
    settings = signature(TARGETS[kind].make).parameters
    chosen: dict[str, Any] = {"limits": limits} if "limits" in settings else {}
    for option, value in options.items():
        setting = _SETTINGS.get(option, option)
        if setting not in settings:
            raise UsageError(f"--{option.replace('_', '-')} cannot be used with --to {kind}")
        chosen[setting] = value
    if "bytes_per_shard" not in chosen:
        samples_per_shard = samples_per_shard or SAMPLES_PER_SHARD
    return TARGETS[kind].make(samples_per_shard=samples_per_shard, **chosen)
