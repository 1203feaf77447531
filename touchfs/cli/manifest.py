"""touchfs manifest"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TypeAlias

import click

from touchfs.cli.command import DatasetsCommand
from touchfs.cli.dataset_argument import datasets_argument, open_indexed
from touchfs.cli.dataset_options import ReadOptions, dataset_options_but_kind, repeated_options
from touchfs.cli.progress import SAMPLES, progress_bar
from touchfs.cli.terminal import complain, json_option, say, say_rows
from touchfs.core.errors import NotFoundError, UsageError, map_os_errors
from touchfs.core.extent import Buffer
from touchfs.dataset import counted
from touchfs.indexing.serving import warn_of_errors, why_unservable
from touchfs.lists.content import list_pieces
from touchfs.lists.extents import open_extents, pieces_of
from touchfs.lists.kinds import CATALOG, EXTENTS, FILES, LEFT_OUT, NAMES
from touchfs.lists.stored import open_lists
from touchfs.posix.atomic import atomic_file
from touchfs.registry.containers import LINES, single_named
from touchfs.verify.checksums import load_checksums

# What is told of a list: its name, where it is, and its size.
Written: TypeAlias = dict[str, str | int]

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


@click.command("manifest", cls=DatasetsCommand)
@datasets_argument("path", "DATASET")
@click.argument("out", metavar="[OUT]", type=click.Path(allow_dash=True))
@click.option("--kind", type=click.Choice(list(_KINDS)), required=True, help="The tool that reads the lists.")
@click.option(
    "--path-prefix", metavar="DIR", default="", help="Directory that paths begin with: the mount point. [default: none]"
)
@json_option
@dataset_options_but_kind
def command(path: str, out: str, kind: str, path_prefix: str, as_json: bool, read_options: ReadOptions) -> int:
    """Write lists of a dataset for other tools.

    They are the files of manifests/ in a mount, and name files of a mount, which need not exist yet; those of extents
    are the stored files themselves. OUT is a directory for kaldi and lhotse, which have several lists, else a file. `-`
    is stdout, the default if there is one DATASET.

    \b
    Example:
      touchfs manifest shards/ data/train --kind kaldi --path-prefix /mnt/speech
      touchfs manifest shards/ --kind nemo --path-prefix /mnt/speech > train.jsonl
    """
    names = _KINDS[kind]
    is_directory = len(names) > 1
    to_stdout = out == "-"
    if is_directory and to_stdout:
        raise UsageError(f"{kind} has several lists: name a directory for them, as in --help")
    if as_json and to_stdout:
        raise UsageError("--json is about the lists in OUT, and without it the list itself goes to stdout: name OUT")
    if not is_directory and _is_shard(out, names[0]):
        problem = "is a shard, and would be overwritten: name OUT last, or - for stdout; remove it if it is an old list"
        raise UsageError(problem, path=out)
    dataset = open_indexed(path, read_options)
    warn_of_errors(dataset, repeated_options())
    if kind == "extents":
        with progress_bar("reading", SAMPLES) as progress:
            written = _write(EXTENTS, out, pieces_of(open_extents(dataset, load_checksums, progress)))
        _tell(written, as_json=as_json)
        return 1 if why_unservable(dataset, strict=True) else 0
    if names != [FILES] and not (dataset.names_recordings or dataset.is_empty):
        raise NotFoundError(
            f"no sample has audio, so {kind} has nothing to list: use --kind filelist or extents", path=path
        )
    with progress_bar("reading", SAMPLES) as progress:
        lists = open_lists(dataset, progress)
    if is_directory:
        with map_os_errors(out):
            os.makedirs(out, exist_ok=True)
    written = list[Written]()
    for name in names:
        place = os.path.join(out, os.path.basename(name)) if is_directory else out
        written += _write(name, place, list_pieces(lists, name, os.path.join(path_prefix, "")))
    _tell(written, as_json=as_json)
    if left := lists.count(LEFT_OUT):
        complain(f"{counted(left, 'file')} not in all lists: `touchfs cat {path}:manifests/{LEFT_OUT}` says why")
    return 1 if why_unservable(dataset, strict=True) else 0


def _is_shard(out: str, name: str) -> bool:
    """True if OUT is a file with data of another kind than the list has, as the last of several tars."""
    container = single_named(os.path.basename(out))
    if name == EXTENTS and os.path.basename(out) == os.path.basename(name):
        return False
    own = None if name == EXTENTS else single_named(name)  # for a dataset may well be of Parquet files
    return container not in (None, LINES, own) and os.path.isfile(out)


def _write(name: str, place: str, pieces: Iterable[Buffer]) -> list[Written]:
    """Write a list, and return what to tell of it: nothing for stdout."""
    if place == "-":
        sys.stdout.buffer.writelines(pieces)
        return []
    with atomic_file(place) as file:
        file.writelines(pieces)
        return [{"list": name, "path": place, "bytes": file.tell()}]


def _tell(written: list[Written], *, as_json: bool) -> None:
    if as_json:
        say_rows(written)
        return
    for row in written:
        say(f"{row['path']}: {row['bytes']:,} bytes")
