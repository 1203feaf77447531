"""touchfs pack"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import click

from touchfs.bulk.data_list import is_relative_to_itself, remark
from touchfs.bulk.pack.fields import DATATYPES
from touchfs.bulk.pack.samples import AUDIO_FORMATS, pack_shar, pack_tar
from touchfs.bulk.pack.touchnet import PackReport, pack_touch
from touchfs.bulk.tables.job import pack_table
from touchfs.bulk.tables.writers import ARROW, LANCE, PARQUET
from touchfs.cli.command_group import CommandGroup
from touchfs.cli.dataset_argument import PATH
from touchfs.cli.dataset_options import features_option
from touchfs.cli.limit_options import limit_options
from touchfs.cli.progress import SAMPLES, progress_bar, progress_option
from touchfs.cli.remote_options import source_options
from touchfs.cli.tables import print_report, settings_of, storage_options
from touchfs.cli.terminal import say
from touchfs.cli.workers import Workers, executor, workers_option
from touchfs.dataset import counted
from touchfs.features import Features
from touchfs.limits import Limits
from touchfs.media.audio import Arithmetic
from touchfs.shard.options import Options


class _PackGroup(CommandGroup):
    renamed: ClassVar[Mapping[str, str]] = {"touch": "touchnet"}


@click.group("pack", cls=_PackGroup)
def command() -> None:
    """Make shards from files.

    DATA.jsonl has a JSON object on each line, for each sample: {"key": "a", "wav": "audio/a.wav", "txt": "hello"}.

    \b
    Example:
      touchfs pack touchnet data.jsonl shards/
      touchfs pack tar data.jsonl tars/
      touchfs pack arrow images/ table/ --features features.json
    """


def _print_report(output: str, report: PackReport) -> None:
    skipped = f", {report.skipped} lines skipped: see {output}/skipped.jsonl" if report.skipped else ""
    say(f"{output}: {counted(report.shards, 'shard')}, {counted(report.samples, 'sample')}{skipped}")


@command.command("touchnet")
@click.argument("jsonl", metavar="DATA.jsonl", type=click.Path())
@click.argument("output", metavar="OUT", type=click.Path())
@click.option(
    "--datatypes", type=click.Choice(DATATYPES), default=DATATYPES[0], show_default=True, help="Contents of a sample."
)
@click.option(
    "--num-utt-per-shard", type=click.IntRange(1), default=1000, show_default=True, help="Lines of DATA per shard."
)
@click.option("--audio-resample", type=click.IntRange(1), default=16000, show_default=True, help="Sample rate in Hz.")
@click.option(
    "--resample-in",
    type=click.Choice(["s16", "float"]),
    default="s16",
    show_default=True,
    help="Resample 16-bit recordings as ffmpeg 5.1 does (s16), or as ffmpeg 6.1 and newer (float).",
)
@click.option(
    "--tokenizer", metavar="FILE", type=click.Path(), help="Tokenizer of the tokenizers library, for texttoken."
)
@click.option(
    "--vocab-size",
    type=click.IntRange(1, 2**31),
    help="For texttoken: ids are uint16 below 65500, else int32. [default: the tokenizer's, else by the largest id]",
)
@click.option("--skip-bad", is_flag=True, help="Skip lines that cannot be packed, and list them in OUT/skipped.jsonl.")
@workers_option("--num-workers")
@source_options
@limit_options("json", "decoded")
@progress_option
def touchnet(
    jsonl: str,
    output: str,
    datatypes: str,
    num_utt_per_shard: int,
    audio_resample: int,
    resample_in: Arithmetic,
    tokenizer: str | None,
    vocab_size: int | None,
    skip_bad: bool,
    workers: Workers,
    limits: Limits,
) -> None:
    """Make TouchNet shards (.bin/.idx).

    They have the same bytes as those of TouchNet's make_data. Each line of DATA.jsonl is a JSON object. The fields of a
    sample are made from it:

    \b
      audio      the recording whose path is in `wav`, as mono 16-bit PCM at the sample rate
      metainfo   the whole object; with audio, sample_rate is added
      video      the bytes of the file whose path is in `video`
      texttoken  `text` encoded by the --tokenizer, without one `input_ids`; no sample if empty

    If a file cannot be read, the error names its line. To continue after an interruption, run the same command again.

    \b
    Example:
      touchfs pack touchnet data.jsonl shards/ --num-utt-per-shard 2000
    """
    with executor(workers, [jsonl], [output]) as pool, progress_bar("packing", SAMPLES) as progress:
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
    _print_report(output, report)
    if is_relative_to_itself(output):
        say(remark(output))


def _samples(function: Callable[..., None]) -> Callable[..., None]:
    options = (
        progress_option,
        limit_options("json", "decoded"),
        source_options,
        workers_option("--num-workers"),
        click.option(
            "--skip-bad", is_flag=True, help="Skip lines that cannot be packed, and list them in OUT/skipped.jsonl."
        ),
        click.option(
            "--resample-in",
            "arithmetic",
            type=click.Choice(["s16", "float"]),
            default="s16",
            show_default=True,
            help="Method to resample 16-bit recordings, as for `touchfs pack touchnet`.",
        ),
        click.option(
            "--audio-resample",
            "rate",
            type=click.IntRange(1),
            metavar="HZ",
            help="Decode recordings and resample them to this rate. Stored as wav without --audio-format.",
        ),
        click.option(
            "--audio-format",
            type=click.Choice(AUDIO_FORMATS),
            help="Decode recordings, and store them in this format, mono, 16 bits. [default: keep the files]",
        ),
        click.option(
            "--num-utt-per-shard",
            "samples_per_shard",
            type=click.IntRange(1),
            default=1000,
            show_default=True,
            help="Lines of DATA per shard.",
        ),
        click.argument("output", metavar="OUT", type=click.Path()),
        click.argument("jsonl", metavar="DATA.jsonl", type=click.Path()),
    )
    for option in options:
        function = option(function)
    return function


@command.command("tar")
@_samples
@click.option("--index", "create_index", is_flag=True, help="Also write indexes OUT/000000.tar.idx, …")
def tar(jsonl: str, output: str, workers: Workers, **options: Any) -> None:
    """Make tars for WebDataset.

    They are OUT/000000.tar and so on. A sample has the file that `wav` names, the line of DATA.jsonl as .json, and its
    `txt` as .txt. Their names begin with the `key`: a dot in its last part becomes %2E, and a repeated key gets ~2, ~3,
    ….

    If a file cannot be read, the error names its line. To continue after an interruption, run the same command again.

    \b
    Example:
      touchfs pack tar data.jsonl tars/ --audio-format flac --audio-resample 16000
    """
    with executor(workers, [jsonl], [output]) as pool, progress_bar("packing", SAMPLES) as progress:
        report = pack_tar(jsonl, output, executor=pool, progress=progress, **options)
    _print_report(output, report)


@command.command("shar")
@_samples
def shar(jsonl: str, output: str, workers: Workers, **options: Any) -> None:
    """Make a Lhotse Shar with indexes.

    It consists of OUT/cuts.000000.jsonl, OUT/recording.000000.tar and so on. Each line of DATA.jsonl becomes a cut: its
    id is the `key`, its recording is the file that `wav` names, and its supervisions are the `info.segments`, or a
    single one for the whole cut with the `txt`.

    If a file cannot be read, the error names its line. To continue after an interruption, run the same command again.

    \b
    Example:
      touchfs pack shar data.jsonl shar/
    """
    with executor(workers, [jsonl], [output]) as pool, progress_bar("packing", SAMPLES) as progress:
        report = pack_shar(jsonl, output, executor=pool, progress=progress, **options)
    _print_report(output, report)


def _table(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    shard_size = click.option(
        "--shard-size",
        type=click.IntRange(1),
        metavar="BYTES",
        help="Begin a new shard after about so many bytes. [default: one shard]",
    )
    options = (
        progress_option,
        limit_options("json", "decoded"),
        source_options,
        click.option("--jobs", "encode_threads", type=click.IntRange(1), help="Number of threads that encode values."),
        click.option(
            "--skip-bad", is_flag=True, help="Skip samples that make no row, and list them in OUT/skipped.jsonl."
        ),
        storage_options(kind),
        *([] if kind == LANCE else [shard_size]),
        features_option(required=True),
        click.argument("output", metavar="OUT", type=click.Path()),
        click.argument("source", metavar="SOURCE", type=PATH),
    )

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for option in options:
            function = option(function)
        return function

    return decorate


def _pack_table(
    kind: str, source: str, output: str, features: str, skip_bad: bool, limits: Limits, options: dict[str, Any]
) -> None:
    settings = settings_of(kind, options)
    with progress_bar("packing") as progress:
        report = pack_table(
            source,
            output,
            settings,
            features=Features.from_json(features),
            options=Options(limits=limits),
            skip_bad=skip_bad,
            progress=progress,
        )
    print_report(output, report)


@command.command(ARROW)
@_table(ARROW)
def arrow(source: str, output: str, features: str, skip_bad: bool, limits: Limits, **options: Any) -> None:
    """Make a table of Arrow shards.

    SOURCE is a DATA.jsonl, whose lines name files; a dataset, such as tars for WebDataset; or a folder of files, whose
    directories are their labels. The columns are those of the features. A column gets the file with the extension that
    it is named after, the member of the JSON with its name, or the only file that it can store; `__key__` gets the key.

    \b
    Example:
      touchfs pack arrow images/ table/ --features features.json
    """
    _pack_table(ARROW, source, output, features, skip_bad, limits, options)


@command.command(PARQUET)
@_table(PARQUET)
def parquet(source: str, output: str, features: str, skip_bad: bool, limits: Limits, **options: Any) -> None:
    """Make a table of Parquet files.

    Its rows are those of `touchfs pack arrow`. Columns of files stay uncompressed, so that each file can be read
    without the others.

    \b
    Example:
      touchfs pack parquet images/ table/ --features features.json
    """
    _pack_table(PARQUET, source, output, features, skip_bad, limits, options)


@command.command(LANCE)
@_table(LANCE)
def lance(source: str, output: str, features: str, skip_bad: bool, limits: Limits, **options: Any) -> None:
    """Make a Lance dataset.

    Its rows are those of `touchfs pack arrow`. With a column of the type Video and the storage `frames`, they are the
    frames of the videos.

    \b
    Example:
      touchfs pack lance images/ table.lance --features features.json
    """
    _pack_table(LANCE, source, output, features, skip_bad, limits, options)
