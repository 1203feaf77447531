"""touchfs show"""

from __future__ import annotations

import os
import shutil
import sys

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import datasets_argument, open_tree
from touchfs.cli.dataset_options import ReadOptions, dataset_options
from touchfs.cli.terminal import complain
from touchfs.core.errors import UsageError
from touchfs.explore.terminal import Terminal
from touchfs.indexing.serving import unshown_audio
from touchfs.pages.at_path import page_at
from touchfs.pages.overview import SampleChoice
from touchfs.picture.cells import Colours
from touchfs.posix.atomic import atomic_file

# Of lines that no terminal bounds.
_PLAIN_WIDTH = 80
_NARROWEST = 20
_HTML, _SVG = ".html", ".svg"


@click.command("show", cls=Command)
@datasets_argument("location", "DATASET[:PATH]")
@click.option("-o", "out", metavar="FILE", help="Write FILE.html or FILE.svg instead, which loads nothing else.")
@click.option("--samples", type=click.IntRange(0, 1000), default=10, help="Random samples in the report of a dataset.")
@click.option("--seed", type=int, default=0, help="Which random samples these are.")
@click.option("--where", metavar="EXPRESSION", help="Only samples for which this holds, such as 'duration > 2'.")
@click.option("--take", type=click.IntRange(0), metavar="N", help="Only the first N of these samples.")
@dataset_options
def command(
    location: str,
    out: str | None,
    samples: int,
    seed: int,
    where: str | None,
    take: int | None,
    read_options: ReadOptions,
) -> None:
    """Draw a dataset, a sample or a file in the terminal.

    PATH is a shard, or a file of any view, as `touchfs ls` lists them. A sample is shown with all of its files and
    segments. Statistics are those of the shards that are indexed; a look indexes at most 1 GiB of others.

    \b
    Example:
      touchfs show shards/
      touchfs show shards/:shards/000000000/talks/monday.wav
      touchfs show shards/ -o report.html --where 'duration > 1'
    """
    if out is not None and not out.endswith((_HTML, _SVG)):
        raise UsageError(f"-o takes a name that ends with {_HTML} or {_SVG}", path=out)
    tree, entry, path = open_tree(location, read_options)
    if advice := unshown_audio(tree.dataset):
        complain(f"touchfs: {advice}")
    choice = SampleChoice(where, take)
    if out is None:
        terminal = _terminal()
        for line in terminal.lines(page_at(tree, entry, path, terminal.size, choice)):
            sys.stdout.buffer.write(line.encode() + b"\n")
        return
    from touchfs.explore.html import SIZE, figure
    from touchfs.pages.report import report_at

    if out.endswith(_SVG):
        text = figure(page_at(tree, entry, path, SIZE, choice))
    else:
        text = report_at(tree, entry, path, samples, seed, choice)
    with atomic_file(out) as file:
        file.write(text.encode())


def _terminal() -> Terminal:
    if not sys.stdout.isatty():
        return Terminal(_PLAIN_WIDTH)
    width = max(shutil.get_terminal_size().columns, _NARROWEST)
    kind = os.environ.get("TERM", "")
    if os.environ.get("NO_COLOR") or kind in ("", "dumb"):
        return Terminal(width)
    is_true = os.environ.get("COLORTERM", "") in ("truecolor", "24bit") or kind.endswith("-direct")
    return Terminal(width, Colours.TRUE if is_true else Colours.PALETTE)
