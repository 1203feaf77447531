"""touchfs iterate"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, BinaryIO

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import datasets_argument, open_indexed
from touchfs.cli.dataset_options import ReadOptions, dataset_options, repeated_options
from touchfs.cli.selection_options import selection_options
from touchfs.core.errors import UsageError
from touchfs.core.token import Token
from touchfs.indexing.serving import check_strictly, warn_of_errors, why_unservable
from touchfs.node.order.partition import KEEP, TAILS

Pairs = Iterator[tuple[Token, Any]]
# Samples whose files are fetched before they are written.
PREFETCHED = 16


@click.command("iterate", cls=Command)
@datasets_argument("path", "DATASET")
@selection_options
@click.option("--shuffle", "seed", type=click.IntRange(0), metavar="SEED", help="Shuffle, differently in each epoch.")
@click.option(
    "--window",
    metavar="N|SIZE",
    help="Shuffle near the order of the data, in windows of so many samples, or of a size such as 2GB.",
)
@click.option("--lanes", type=click.IntRange(1), default=1, help="Windows side by side, for so many machines.")
@click.option("--rank", type=click.IntRange(0), default=0, help="Number of this process among all, from 0.")
@click.option("--world-size", type=click.IntRange(1), default=1, help="Number of processes that share the samples.")
@click.option(
    "--tail",
    type=click.Choice(TAILS),
    default=KEEP,
    help="What becomes of samples that do not divide evenly among processes: some get one more, none gets them, or "
    "others are repeated.",
)
@click.option(
    "--global-batch",
    type=click.IntRange(1),
    metavar="N",
    help="Samples of a batch, of which processes take parts. [default: that of the state; else they take turns]",
)
@click.option("--epoch", type=click.IntRange(0), help="First epoch, 0 by default.")
@click.option("--repeat", type=click.IntRange(1), metavar="N", help="Treat N successive epochs as one.")
@click.option("--take", type=click.IntRange(0), metavar="N", help="Stop after N samples, or at the end of the epoch.")
@click.option("--resume", type=click.Path(), metavar="FILE", help="Continue from the state in FILE.")
@click.option(
    "--until",
    type=click.Path(),
    metavar="FILE",
    help="Write what had come in the epoch when the state in FILE was saved.",
)
@click.option("--save-state", type=click.Path(), metavar="FILE", help="Save the state to FILE at the end.")
@click.option("--format", "kind", type=click.Choice(["paths", "json", "tar"]), default="paths", help="Output format.")
@click.option(
    "--extension", metavar="EXT", help="Write the path of the file with this extension, such as jpg, not of the first."
)
@click.option("--strict", is_flag=True, help="Fail if any shard has errors, even in interleaved/.")
@dataset_options
def command(
    path: str,
    select: str,
    where: str | None,
    seed: int | None,
    window: str | None,
    lanes: int,
    rank: int,
    world_size: int,
    tail: str,
    global_batch: int | None,
    epoch: int | None,
    repeat: int | None,
    take: int | None,
    resume: str | None,
    until: str | None,
    save_state: str | None,
    kind: str,
    extension: str | None,
    strict: bool,
    read_options: ReadOptions,
) -> int:
    """Write samples, in order or shuffled, and save the state.

    The format paths writes the path of each sample's first file, as in `touchfs ls`. If you get fewer
    samples than --take, the epoch is over, and the next call starts a new one. An expression is as `where` in the spec
    of an iterator. If a shard has errors, the samples of the others are written, and the exit status is 1.

    \b
    Example:
      touchfs iterate shards/ --shuffle 7 --take 3 --save-state state.json
      touchfs iterate shards/ --shuffle 7 --take 3 --resume state.json --save-state state.json
    """
    from touchfs import node
    from touchfs.iterators.output import path_of
    from touchfs.node.graph.state import read_state
    from touchfs.node.order.batches import BATCHES, global_batch_of
    from touchfs.select.ids.names import open_file
    from touchfs.select.selector import Selector
    from touchfs.select.survivors import survivors_directory
    from touchfs.select.window import samples_in

    if extension is not None and kind != "paths":
        raise UsageError(f"--extension chooses a path, and --format {kind} writes none: leave out one of them")
    if resume is not None and epoch is not None:
        raise UsageError("--resume already determines the epoch: leave out --epoch")
    if until is not None and (resume or save_state or repeat or epoch is not None):
        raise UsageError(
            "--until goes through the epoch of a state: leave out --resume, --save-state, --epoch, --repeat"
        )
    given = resume or until
    state = None if given is None else read_state(given)
    before = None if state is None else global_batch_of(state["state"])
    if global_batch is not None and before not in (None, global_batch):
        sys.stderr.write(f"touchfs: the state is of global batches of {before}, which go on in {global_batch}\n")
    global_batch = global_batch or before
    dataset = open_indexed(path, read_options)
    if strict:
        check_strictly(dataset)
    samples = Selector(dataset, survivors_directory(), open_ids=open_file).select(select, where)
    warn_of_errors(samples.dataset, repeated_options())
    graph: Any = node.LazyIndexedManifestIterator(
        samples,
        seed is not None,
        seed or 0,
        rank=rank,
        world_size=world_size,
        partition="stride" if global_batch is None else BATCHES,
        tail=tail,
        global_batch=global_batch,
        window=None if window is None else samples_in(int(window) if window.isdecimal() else window, samples),
        lanes=lanes,
    )
    if repeat is not None:
        graph = node.LazyRepeater(graph, repeat)
    if resume is not None:
        node.load_state(graph, resume)
        if graph.state_dict().get("ended"):  # the call before this one has told so
            list(graph.pairs())
    elif epoch is not None:
        graph.load_state_dict(graph.begin(epoch).state())
    output = sys.stdout.buffer
    write = _WRITERS[kind]
    if extension is not None:
        write = partial(_write_paths, path_of=partial(path_of, extension=extension))
    pairs = graph.pairs() if until is None or state is None else graph.seen(state["state"])
    write(((token, make()) for token, make in islice(pairs, take)), output)
    output.flush()
    if save_state is not None:
        node.save_state(graph, save_state)
    return 1 if why_unservable(dataset, strict=True) else 0


def _write_paths(pairs: Pairs, output: BinaryIO, path_of: Callable[[Any], bytes] | None = None) -> None:
    for _, sample in pairs:
        for extension in islice(sample, 1):
            path = os.fsencode(sample.path(extension)) if path_of is None else path_of(sample)
            output.write(path + b"\n")


def _write_json(pairs: Pairs, output: BinaryIO) -> None:
    for token, sample in pairs:
        record = {
            "token": token,
            "key": sample.key,
            "shard": sample.shard,
            "ordinal": sample.ordinal,
            "files": {extension: sample.path(extension) for extension in sample},
        }
        output.write(json.dumps(record).encode() + b"\n")


def _write_tar(pairs: Pairs, output: BinaryIO) -> None:
    """Write a tar. Members are named by their paths in the shard's directory, so none is extracted outside of the
    target directory. Readers would divide a sample that has a directory, so `key/image.png` is `key.image.png`, as for
    `touchfs convert`.
    """
    from touchfs.bulk.convert.names import quote_key
    from touchfs.containers.tar.layout.header import build_header, end_of_archive, padding
    from touchfs.node.transform.sample_files import prefetched

    size = 0
    for sample in prefetched((sample for _, sample in pairs), PREFETCHED):
        above = len(f"{sample.view}/{sample.shard}/")
        for extension, data in sample.items():
            name = sample.path(extension)[above:]
            if name.endswith(f"/{extension}"):
                name = f"{quote_key(name.removesuffix(f'/{extension}'))}.{extension}"
            parts = [build_header(name, len(data)), data, padding(len(data))]
            output.writelines(parts)
            size += sum(map(len, parts))
    output.write(end_of_archive(size))


_WRITERS: dict[str, Callable[[Pairs, BinaryIO], None]] = {"paths": _write_paths, "json": _write_json, "tar": _write_tar}
