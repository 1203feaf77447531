"""touchfs image"""

from __future__ import annotations

import os

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import datasets_argument, open_indexed
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.progress import progress_bar
from touchfs.cli.terminal import complain, say
from touchfs.core.control_characters import quote_name
from touchfs.core.errors import UsageError
from touchfs.dataset import counted
from touchfs.images.check import check_image
from touchfs.images.image import write_image
from touchfs.images.plan import ImagePlan, plan_image
from touchfs.posix.atomic import atomic_file


@click.command("image", cls=Command)
@datasets_argument("path", "DATASET")
@click.option("-o", "--output", metavar="X.erofs", required=True, type=click.Path(dir_okay=False), help="The image.")
@click.option("--by-key", is_flag=True, help="Also write by-key/, with a link for each file.")
@click.option(
    "--allow-other", is_flag=True, help="Give files the modes of their shards; else the image is yours alone."
)
@click.option("--check", is_flag=True, help="Write nothing; compare the image with the dataset, with the same options.")
@click.option("--force", is_flag=True, help="Replace an existing image.")
@dataset_options
def command(
    path: str, output: str, by_key: bool, allow_other: bool, check: bool, force: bool, read_options: ReadOptions
) -> int:
    """Write an image by which Linux itself shows the files.

    The image has names and places, and of the data only files of overlays, texts that are in the index, and the ends of
    recordings: it is of use with these very files. It has what shards/ has of tars and Lhotse Shar that are on this
    machine and not compressed, and of recordings that lists name. Files that touchfs makes of others are left out, and
    so are damaged shards: the output counts and names them.
    The same data make the same image.

    With --check the exit status is 1 if the image is not that of the dataset, or if a file is followed by bytes that
    mmap would show.

    \b
    Example:
      touchfs demo demo
      touchfs image demo/webdataset -o demo.erofs
      touchfs image demo/webdataset -o demo.erofs --check
    """
    from touchfs_mount.mounting.image_owners import image_owners

    if not check and os.path.lexists(output) and not force:
        raise UsageError("already exists: --force replaces it", path=output)
    dataset = open_indexed(path, read_options)
    plan = plan_image(dataset)
    owners = image_owners(dataset, allow_other=allow_other)
    if check:
        problems = 0
        with progress_bar("checking", "shards") as progress:
            for line in check_image(output, plan, owners, by_key=by_key, progress=progress):
                say(f"{quote_name(output)}: {line}")
                problems += 1
        say(f"{quote_name(output)}: {counted(problems, 'problem') if problems else 'no problem'}")
        return 1 if problems else 0
    with progress_bar("writing", "shards") as progress, atomic_file(output) as file:
        written = write_image(plan, owners, file, by_key=by_key, progress=progress)
    links = f", {counted(written.links, 'link')}" if by_key else ""
    size = f"{counted(len(plan.shards), 'shard')}, {counted(written.files, 'file')}{links}, {written.size:,} bytes"
    say(f"{quote_name(output)}: {size}")
    tell_left_out(plan)
    return 0


def tell_left_out(plan: ImagePlan) -> None:
    """Print what is not in an image: the number of files of each kind, and on stderr damaged shards."""
    if left_out := str(plan.left_out):
        say(f"left out: {left_out}")
    for name, reason in plan.left_out.damaged.items():
        complain(f"touchfs: left out: {quote_name(name)}: {reason}")
