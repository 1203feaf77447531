"""touchfs convert"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.target import Target
from touchfs.bulk.convert.touchnet import DATATYPES, TouchTarget
from touchfs.bulk.data_list import is_relative_to_itself, remark
from touchfs.cli.console import PATH, audio_root_option, jobs_option, limit_options, segments_option
from touchfs.cli.progress import progress_bar, progress_option
from touchfs.cli.terminal import executor, say
from touchfs.dataset import counted
from touchfs.errors import UsageError
from touchfs.limits import Limits
from touchfs.shard.options import FIRST_DOT, LAST_DOT, Options

SAMPLES_PER_SHARD = 1000
# The options that only some targets have, with their names in the constructors.
_OPTIONS: dict[str, dict[str, str]] = {
    "tar": {"shard_size": "bytes_per_shard", "index": "create_index"},
    "shar": {},
    "touch": {"datatypes": "datatypes", "audio_resample": "rate", "resample_in": "arithmetic"},
}
_TARGETS: dict[str, Callable[..., Target]] = {
    "touch": TouchTarget,
    "tar": TarTarget,
    "shar": SharTarget,
}


@click.command("convert")
@click.argument("path", metavar="DATASET", type=PATH)
@click.argument("output", metavar="OUT", type=click.Path())
@click.option("--to", "kind", type=click.Choice(list(_TARGETS)), required=True, help="Kind of shards to write.")
@click.option(
    "--num-utt-per-shard",
    type=click.IntRange(1),
    help=f"Samples per shard. [default: {SAMPLES_PER_SHARD}, with --shard-size no limit]",
)
@click.option(
    "--shard-size", type=click.IntRange(1), metavar="BYTES", help="tar: begin a new shard after this many bytes."
)
@click.option("--index", is_flag=True, default=None, help="tar: also write indexes OUT/000000.tar.idx, …")
@click.option("--datatypes", type=click.Choice(DATATYPES), help=f"touch: contents. [default: {DATATYPES[0]}]")
@click.option(
    "--audio-resample",
    type=click.IntRange(1),
    metavar="HZ",
    help="touch: sample rate. [default: that of the recording]",
)
@click.option(
    "--resample-in", type=click.Choice(["s16", "float"]), help="touch: as for `touchfs pack touch`. [default: s16]"
)
@click.option("--leave-out", multiple=True, metavar="EXTENSION", help="Omit the files with this extension.")
@click.option(
    "--skip-bad", is_flag=True, help="Skip samples that cannot be converted, and list them in OUT/skipped.jsonl."
)
@click.option("--sample-rate", type=click.IntRange(1), metavar="HZ", help="Sample rate of audio without a rate.")
@click.option(
    "--key-rule",
    type=click.Choice([FIRST_DOT, LAST_DOT]),
    default=FIRST_DOT,
    help="The key of a tar member ends at its first dot (as in WebDataset) or its last (as in WeNet).",
)
@segments_option
@audio_root_option
@jobs_option()
@limit_options("json", "decoded")
@progress_option
def command(
    path: str,
    output: str,
    kind: str,
    num_utt_per_shard: int | None,
    leave_out: tuple[str, ...],
    skip_bad: bool,
    sample_rate: int | None,
    key_rule: str,
    segments: str,
    audio_root: str | None,
    processes: int,
    limits: Limits,
    **target_options: Any,
) -> None:
    """Write a dataset as shards of another kind.

    Samples keep their order and their keys.

    \b
      touch   TouchNet shards (.bin/.idx): mono 16-bit PCM and metainfo
      tar     WebDataset tars: each file that `touchfs ls` shows, unchanged
      shar    Lhotse Shar: cuts with recordings, supervisions, arrays

    If the target cannot store a field, the error names the sample. In tars a dot in the last part of a key becomes %2E,
    and a repeated key gets ~2, ~3, …. To continue after an interruption, run the same command again.

    \b
    Example:
      touchfs convert shards/ tars/ --to tar
      touchfs convert tars/ shar/ --to shar
    """
    target = _target(kind, num_utt_per_shard, limits, target_options)
    with executor(processes) as pool, progress_bar("converting") as progress:
        report = convert(
            path,
            output,
            target,
            options=Options(sample_rate, key_rule, limits=replace(limits, audio_root=audio_root), segments=segments),
            leave_out=leave_out,
            skip_bad=skip_bad,
            executor=pool,
            progress=progress,
        )
    skipped = f", {report.skipped} skipped: see {output}/skipped.jsonl" if report.skipped else ""
    say(f"{output}: {counted(report.shards, 'shard')}, {counted(report.samples, 'sample')}{skipped}")
    if kind == "touch" and is_relative_to_itself(output):
        say(remark(output))


def _target(kind: str, samples_per_shard: int | None, limits: Limits, options: dict[str, Any]) -> Target:
    chosen: dict[str, Any] = {} if kind == "tar" else {"limits": limits}
    for option, value in options.items():
        if value is not None:
            if option not in _OPTIONS[kind]:
                raise UsageError(f"--{option.replace('_', '-')} cannot be used with --to {kind}")
            chosen[_OPTIONS[kind][option]] = value
    if "bytes_per_shard" not in chosen:
        samples_per_shard = samples_per_shard or SAMPLES_PER_SHARD
    return _TARGETS[kind](samples_per_shard=samples_per_shard, **chosen)
