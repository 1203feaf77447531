"""touchfs pack"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from touchfs.bulk.data_list import is_relative_to_itself, remark
from touchfs.bulk.pack.fields import DATATYPES
from touchfs.bulk.pack.samples import AUDIO_FORMATS, pack_shar, pack_tar
from touchfs.bulk.pack.touchnet import PackReport, pack_touch
from touchfs.cli.console import limit_options
from touchfs.cli.progress import SAMPLES, progress_bar, progress_option
from touchfs.cli.terminal import CPUS, executor, say
from touchfs.dataset import counted
from touchfs.limits import Limits
from touchfs.media.audio import Arithmetic


@click.group("pack", no_args_is_help=False)
def command() -> None:
    """Make shards from files.

    \b
    Example:
      touchfs pack touch data.jsonl shards/
      touchfs pack tar data.jsonl tars/
    """


def _told(output: str, report: PackReport) -> None:
    skipped = f", {report.skipped} lines skipped: see {output}/skipped.jsonl" if report.skipped else ""
    say(f"{output}: {counted(report.shards, 'shard')}, {counted(report.samples, 'sample')}{skipped}")


@command.command("touch")
@click.argument("jsonl", metavar="DATA.jsonl", type=click.Path())
@click.argument("output", metavar="OUT", type=click.Path())
@click.option(
    "--datatypes", type=click.Choice(DATATYPES), default=DATATYPES[0], show_default=True, help="What samples hold."
)
@click.option(
    "--num-utt-per-shard", type=click.IntRange(1), default=1000, show_default=True, help="Lines of DATA in each shard."
)
@click.option("--audio-resample", type=click.IntRange(1), default=16000, show_default=True, help="Sample rate in Hz.")
@click.option(
    "--resample-in",
    type=click.Choice(["s16", "float"]),
    default="s16",
    show_default=True,
    help="How 16-bit recordings are resampled: s16 as ffmpeg 5.1, float as ffmpeg 6.1 and newer.",
)
@click.option("--tokenizer", metavar="FILE", type=click.Path(), help="Of the tokenizers library, for texttoken.")
@click.option(
    "--vocab-size",
    type=click.IntRange(1, 2**31),
    help="For texttoken: below 65500, ids are uint16, else int32. [default: the tokenizer's, else by the largest id]",
)
@click.option("--skip-bad", is_flag=True, help="Leave out what cannot be read, and list it in OUT/skipped.jsonl.")
@click.option("--num-workers", type=click.IntRange(1), default=CPUS, show_default=True, help="Processes.")
@limit_options("json", "decoded")
@progress_option
def touch(
    jsonl: str,
    output: str,
    datatypes: str,
    num_utt_per_shard: int,
    audio_resample: int,
    resample_in: Arithmetic,
    tokenizer: str | None,
    vocab_size: int | None,
    skip_bad: bool,
    num_workers: int,
    limits: Limits,
) -> None:
    """Make TouchNet shards (.bin/.idx), byte for byte as TouchNet's make_data does.

    Each line of DATA.jsonl is an object. Of its fields are made

    \b
      audio      wav, the path of any recording: mono 16-bit PCM at the sample rate
      metainfo   the whole object, with audio also the sample_rate
      video      video, the path of a file: its bytes
      texttoken  text by the --tokenizer, without it input_ids; where that is empty, no sample

    A file that cannot be read is an error that names its line. Interrupted, the same command again goes on.

    \b
    Example:
      touchfs pack touch data.jsonl shards/ --num-utt-per-shard 2000
    """
    with executor(num_workers) as pool, progress_bar("packing", SAMPLES) as progress:
        report = pack_touch(
            jsonl,
            output,
            datatypes=datatypes,
            samples_per_shard=num_utt_per_shard,
            rate=audio_resample,
            arithmetic=resample_in,
            tokenizer=tokenizer,
            vocab_size=vocab_size,
            skip_bad=skip_bad,
            limits=limits,
            executor=pool,
            progress=progress,
        )
    _told(output, report)
    if is_relative_to_itself(output):
        say(remark(output))


def _samples(function: Callable[..., None]) -> Callable[..., None]:
    """The options of the commands that keep recordings as they are."""
    options = (
        progress_option,
        limit_options("json", "decoded"),
        click.option("--num-workers", type=click.IntRange(1), default=CPUS, show_default=True, help="Processes."),
        click.option(
            "--skip-bad", is_flag=True, help="Leave out what cannot be read, and list it in OUT/skipped.jsonl."
        ),
        click.option(
            "--resample-in",
            "arithmetic",
            type=click.Choice(["s16", "float"]),
            default="s16",
            show_default=True,
            help="How 16-bit recordings are resampled, as for `touchfs pack touch`.",
        ),
        click.option(
            "--audio-resample",
            "rate",
            type=click.IntRange(1),
            metavar="HZ",
            help="Decode recordings to this sample rate; without --audio-format, as wav.",
        ),
        click.option(
            "--audio-format",
            type=click.Choice(AUDIO_FORMATS),
            help="Decode recordings, and store them so: mono, 16 bits. [default: the files as they are]",
        ),
        click.option(
            "--num-utt-per-shard",
            "samples_per_shard",
            type=click.IntRange(1),
            default=1000,
            show_default=True,
            help="Lines of DATA in each shard.",
        ),
        click.argument("output", metavar="OUT", type=click.Path()),
        click.argument("jsonl", metavar="DATA.jsonl", type=click.Path()),
    )
    for option in options:
        function = option(function)
    return function


@command.command("tar")
@_samples
@click.option("--index", "create_index", is_flag=True, help="Write OUT/000000.tar.idx, … beside the tars.")
def tar(jsonl: str, output: str, num_workers: int, **options: Any) -> None:
    """Make tars for WebDataset, OUT/000000.tar and so on.

    Of each line of DATA.jsonl there is the file that `wav` names, the line as .json, and its `txt` as .txt, under the
    `key`: in which a dot of the last part becomes %2E, and which gets ~2, ~3, … where it is there already.

    A file that cannot be read is an error that names its line. Interrupted, the same command again goes on.

    \b
    Example:
      touchfs pack tar data.jsonl tars/ --audio-format flac --audio-resample 16000
    """
    with executor(num_workers) as pool, progress_bar("packing", SAMPLES) as progress:
        report = pack_tar(jsonl, output, executor=pool, progress=progress, **options)
    _told(output, report)


@command.command("shar")
@_samples
def shar(jsonl: str, output: str, num_workers: int, **options: Any) -> None:
    """Make a Lhotse Shar, OUT/cuts.000000.jsonl, OUT/recording.000000.tar and so on, with indexes.

    Each line of DATA.jsonl is a cut: its id is the `key`, its recording the file that `wav` names, its supervisions are
    the `info.segments`, or one over all with the `txt`.

    A file that cannot be read is an error that names its line. Interrupted, the same command again goes on.

    \b
    Example:
      touchfs pack shar data.jsonl shar/
    """
    with executor(num_workers) as pool, progress_bar("packing", SAMPLES) as progress:
        report = pack_shar(jsonl, output, executor=pool, progress=progress, **options)
    _told(output, report)
