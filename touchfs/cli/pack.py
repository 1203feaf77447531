"""touchfs pack"""

from __future__ import annotations

import click

from touchfs.cli.terminal import CPUS, executor, progress_bar, say
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
    "--num-utt-per-shard", type=click.IntRange(1), default=1000, show_default=True, help="Lines of DATA in each shard."
)
@click.option("--audio-resample", type=click.IntRange(1), default=16000, show_default=True, help="Sample rate in Hz.")
@click.option("--num-workers", type=click.IntRange(1), default=CPUS, show_default=True, help="Processes.")
def touch(jsonl: str, output: str, num_utt_per_shard: int, audio_resample: int, num_workers: int) -> None:
    """Make TouchNet shards (.bin/.idx), byte for byte as TouchNet's make_data does.

    Each line of DATA.jsonl is an object with `wav`, the path of a mono 16-bit PCM file at the sample rate; the whole
    object becomes the sample's metainfo. A file that cannot be read is an error that names its line.

    \b
    Example:
      touchfs pack touch data.jsonl shards/ --num-utt-per-shard 2000
    """
    with executor(num_workers) as pool, progress_bar("packing") as progress:
        report = pack_touch(
            jsonl,
            output,
            samples_per_shard=num_utt_per_shard,
            rate=audio_resample,
            executor=pool,
            progress=progress,
        )
    say(f"{output}: {report.shards} shards, {report.samples} samples")
