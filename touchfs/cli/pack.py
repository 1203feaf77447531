"""touchfs pack"""

from __future__ import annotations

import click

from touchfs.cli.terminal import CPUS, executor, progress_bar, say
from touchfs.dataset import counted
from touchfs.media.audio import Arithmetic
from touchfs.write.making import DATATYPES
from touchfs.write.pack import pack_touch


@click.group("pack", no_args_is_help=False)
def command() -> None:
    """Make shards from files.

    \b
    Example:
      touchfs pack touch data.jsonl shards/
    """


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
    with executor(num_workers) as pool, progress_bar("packing") as progress:
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
            executor=pool,
            progress=progress,
        )
    skipped = f", {report.skipped} lines skipped: see {output}/skipped.jsonl" if report.skipped else ""
    say(f"{output}: {counted(report.shards, 'shard')}, {counted(report.samples, 'sample')}{skipped}")
