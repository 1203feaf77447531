"""touchfs manifest"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import PATH, open_indexed
from touchfs.cli.dataset_options import ReadOptions, dataset_options_but_kind, repeated_options
from touchfs.cli.progress import SAMPLES, progress_bar
from touchfs.cli.terminal import complain
from touchfs.core.errors import NotFoundError, UsageError, map_os_errors
from touchfs.core.extent import Buffer
from touchfs.dataset import counted
from touchfs.indexing.serving import warn_of_errors, why_unservable
from touchfs.lists.content import list_pieces
from touchfs.lists.extents import open_extents, pieces_of
from touchfs.lists.kinds import CATALOG, EXTENTS, FILES, LEFT_OUT, NAMES
from touchfs.lists.stored import open_lists
from touchfs.posix.atomic import atomic_file
from touchfs.verify.checksums import load_checksums

# The lists of each kind. The first part of a name is not repeated in OUT.
_KINDS = {
    "kaldi": [name for name in NAMES if name.startswith("kaldi/")],
    "nemo": ["nemo_manifest.jsonl"],
    "lhotse": [name for name in NAMES if name.startswith("lhotse/")],
    "hf": ["hf/metadata.csv"],
    "wenet": ["wenet/data.list"],
    "filelist": [FILES],
    "catalog": [CATALOG],
    "extents": [EXTENTS],
}


@click.command("manifest", cls=Command)
@click.argument("path", metavar="DATASET", type=PATH)
@click.argument("out", type=click.Path(), required=False)
@click.option("--kind", type=click.Choice(list(_KINDS)), required=True, help="The tool that reads the lists.")
@click.option(
    "--path-prefix", metavar="DIR", default="", help="Directory that paths begin with: the mount point. [default: none]"
)
@dataset_options_but_kind
def command(path: str, out: str | None, kind: str, path_prefix: str, read_options: ReadOptions) -> int:
    """Write lists of a dataset for other tools.

    They are the files of manifests/ in a mount, and name files of a mount, which need not exist yet; those of extents
    are the stored files themselves. OUT is a directory for kaldi and lhotse, which have several lists, else a file;
    without it a list goes to stdout.

    \b
    Example:
      touchfs manifest shards/ data/train --kind kaldi --path-prefix /mnt/speech
      touchfs manifest shards/ --kind nemo --path-prefix /mnt/speech > train.jsonl
    """
    names = _KINDS[kind]
    is_directory = len(names) > 1
    if is_directory and out is None:
        raise UsageError(f"{kind} has several lists: name a directory for them, as in --help")
    dataset = open_indexed(path, read_options)
    warn_of_errors(dataset, repeated_options())
    if kind == "extents":
        with progress_bar("reading", SAMPLES) as progress:
            _write(out, pieces_of(open_extents(dataset, load_checksums, progress)))
        return 1 if why_unservable(dataset, strict=True) else 0
    if names != [FILES] and not (dataset.names_recordings or dataset.is_empty):
        raise NotFoundError(
            f"no sample has audio, so {kind} has nothing to list: use --kind filelist or extents", path=path
        )
    with progress_bar("reading", SAMPLES) as progress:
        lists = open_lists(dataset, progress)
    if is_directory and out is not None:
        with map_os_errors(out):
            os.makedirs(out, exist_ok=True)
    for name in names:
        place = os.path.join(out, os.path.basename(name)) if is_directory and out is not None else out
        _write(place, list_pieces(lists, name, os.path.join(path_prefix, "")))
    if left := lists.count(LEFT_OUT):
        complain(f"{counted(left, 'file')} not in all lists: `touchfs cat {path}:manifests/{LEFT_OUT}` says why")
    return 1 if why_unservable(dataset, strict=True) else 0


def _write(out: str | None, pieces: Iterable[Buffer]) -> None:
    if out is None:
        sys.stdout.buffer.writelines(pieces)
        return
    with atomic_file(out) as file:
        file.writelines(pieces)
