"""touchfs interleave"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click

from touchfs.bulk.data_list import check_apart
from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import PATH
from touchfs.cli.limit_options import Size, limit_options
from touchfs.cli.progress import progress_bar, progress_option
from touchfs.cli.remote_options import source_options
from touchfs.cli.terminal import complain, say
from touchfs.cli.workers import HERE, Workers, executor, workers_option
from touchfs.core.errors import UsageError
from touchfs.core.task_paths import path_there
from touchfs.dataset import counted
from touchfs.limits import LIMITS, Limits
from touchfs.shard.options import ERROR, ITEM_POLICIES

WDS, PARQUET = "wds", "parquet"
_TARS = ("tar", WDS, "webdataset")
_WDS_ONLY = frozenset(
    {"sample_id_field", "texts_field", "images_field", "image_member_field", "per_image_fields", "per_text_fields"}
)


class KindOfShards(click.Choice[str]):
    """A choice of kinds of shards. Tars have the names that other tools give them, too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "touch" and "touchnet" in self.choices:
            raise UsageError("`--to touch` has another name now: --to touchnet")
        names = [kind for kind in self.choices if kind in _TARS]
        return super().convert(names[0] if names and value in _TARS else value, param, ctx)


@click.command("interleave", cls=Command)
@click.argument("path", metavar="IN", type=PATH)
@click.argument("output", metavar="OUT", type=click.Path())
@click.option("--to", "kind", type=KindOfShards([WDS, PARQUET]), help="Kind of shards to write. [default: that of IN]")
@click.option(
    "--where",
    multiple=True,
    metavar="EXPRESSION",
    help="Keep the items that match, for example 'aspect_ratio < 2'. Repeat it for further conditions.",
)
@click.option(
    "--max-batch-bytes",
    type=Size(),
    default="512M",
    show_default=True,
    help="Memory for the rows of a batch. A larger sample is a batch by itself.",
)
@click.option(
    "--on-materialize-error",
    type=click.Choice(ITEM_POLICIES),
    default=ERROR,
    show_default=True,
    help="What to do about an image whose bytes cannot be read.",
)
@click.option(
    "--allow-location",
    "locations",
    multiple=True,
    metavar="PREFIX",
    help="Also read files that rows name below this directory or URL.",
)
@click.option("--fields", multiple=True, metavar="NAME", help="Pass on only these columns. Repeat it for several.")
@click.option("--sample-id-field", metavar="NAME", help="wds: key of the JSON with a sample's id. [default: its name]")
@click.option("--texts-field", metavar="NAME", help="wds: key of the texts. [default: texts]")
@click.option("--images-field", metavar="NAME", help="wds: key of the images. [default: images]")
@click.option("--image-member-field", metavar="NAME", help="wds: key of the member that has a sample's images.")
@click.option(
    "--per-image-field",
    "per_image_fields",
    multiple=True,
    metavar="NAME",
    help="wds: key of a list with a value for each image.",
)
@click.option(
    "--per-text-field",
    "per_text_fields",
    multiple=True,
    metavar="NAME",
    help="wds: key of a list with a value for each text.",
)
@click.option(
    "--files-per-shard",
    "files_per_partition",
    type=click.IntRange(1),
    help="Files of IN that become a shard. [default: 1]",
)
@source_options
@limit_options("json", "decoded")
@workers_option("--workers")
@progress_option
def command(
    path: str,
    output: str,
    kind: str | None,
    where: tuple[str, ...],
    on_materialize_error: str,
    locations: tuple[str, ...],
    limits: Limits,
    workers: Workers,
    **reading: Any,
) -> int:
    """Filter and convert interleaved samples.

    These are documents of texts and images: WebDataset tars whose JSON lists them in reading order, as in MINT-1T, or
    Parquet files with a row for each text and image. IN is such a file, a directory of them or a pattern. Each file
    becomes a shard of OUT.

    An expression compares fields, see docs/control-files.md. Its fields are the columns, and the width, height and
    aspect_ratio of an image, which its header says. To continue after an interruption, run the same command again.
    A tar whose JSON lists no texts and images, as an ordinary one for WebDataset, is reported, and the exit status is
    then 1.

    \b
    Example:
      touchfs interleave mint/ parquet/ --to parquet --where 'aspect_ratio < 2'
      touchfs interleave parquet/ tars/ --to wds
    """
    return interleave_shards(path, output, kind, where, on_materialize_error, locations, limits, workers, reading)


def interleave_shards(
    path: str,
    output: str,
    kind: str | None,
    where: tuple[str, ...] = (),
    on_materialize_error: str = ERROR,
    locations: tuple[str, ...] = (),
    limits: Limits = LIMITS,
    workers: Workers = HERE,
    reading: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Run the job, print its report and return the exit status: 1 if nothing interleaved was found in a file.

    `reading` are options of the reader, None or empty if they are not given.
    """
    from touchfs.interleaved import InterleavedFilter, Pipeline  # first: it says which extra is missing

    # isort: split
    from touchfs.bulk.interleave.job import interleave
    from touchfs.interleaved.known_fields import check_fields
    from touchfs.interleaved.open import kind_of, open_interleaved, open_writer

    found = kind_of(path)
    if (kind or found) == found:
        check_apart(path, output)
    reader = open_interleaved(path, limits=limits, **_parameters(found, reading))
    check_fields(reader, where)
    # A process that has nothing to do would still import pyarrow.
    with (
        executor(workers.at_most(len(reader.partitions())), [path], [output]) as pool,
        progress_bar("interleaving") as progress,
    ):
        locations = tuple(path_there(pool, location) for location in locations)
        filters = tuple(InterleavedFilter(each, locations) for each in where)
        writer = open_writer(
            kind or found,
            path_there(pool, output),
            on_materialize_error=on_materialize_error,
            locations=locations,
            limits=limits,
        )
        report = interleave(Pipeline(reader, filters, writer), output, executor=pool, progress=progress)
    before = report.shards - report.written
    resumed = f" ({before} of an earlier run)" if before else ""
    counts = f"{counted(report.samples, 'sample')}, {counted(report.rows, 'item')}"
    frames = report.reencoded_frames
    reencoded = f", {counted(frames, 'TIFF frame')} encoded again without loss" if frames else ""
    say(f"{output}: {counted(report.shards, 'shard')}{resumed}, {counts}{reencoded}")
    for each in report.itemless:
        problem = "nothing interleaved was found: no .json in it lists texts or images, so its files are not passed on"
        complain(f"touchfs: {each}: {problem}")
    return 1 if report.itemless else 0


def _parameters(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a reader from the options that are given. Raises UsageError for one that it lacks."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    if kind == PARQUET:
        for name in given.keys() & _WDS_ONLY:
            raise UsageError(f"--{name.replace('_', '-').removesuffix('s')} is for tars, and IN has Parquet files")
    return given
