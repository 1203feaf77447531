"""touchfs iterate"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import datasets_argument, open_indexed
from touchfs.cli.dataset_options import ReadOptions, dataset_options, repeated_options
from touchfs.cli.progress import SAMPLES, progress_bar
from touchfs.cli.selection_options import selection_options
from touchfs.core.errors import FormatError, UsageError
from touchfs.core.progress import ProgressTotal, listening
from touchfs.core.token import Token
from touchfs.indexing.serving import check_strictly, warn_of_errors, why_unservable
from touchfs.node.order.partition import KEEP, TAILS

Pairs = Iterator[tuple[Token, Any]]
Writer = Callable[[Pairs, BinaryIO], None]
# Samples whose files are fetched before they are written.
PREFETCHED = 16


@click.command("iterate", cls=Command)
@datasets_argument("path", "DATASET")
@selection_options
@click.option("--shuffle", "seed", type=click.IntRange(0), metavar="SEED", help="Shuffle, differently in each epoch.")
@click.option(
    "--window",
    metavar="N|SIZE",
    help="Shuffle near the order of the data, in windows of this many samples, or of a size such as 2GB.",
)
@click.option("--lanes", type=click.IntRange(1), default=1, help="Windows side by side, one for each machine.")
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
@click.option(
    "--max-duration",
    type=float,
    metavar="SECONDS",
    help="Write batches of samples of like length, padded of so many seconds at most. An empty line ends each, or its "
    "number is in the JSON. --take and --global-batch count batches.",
)
@click.option("--max-tokens", type=int, metavar="N", help="The same, of so many tokens at most.")
@click.option("--pack", is_flag=True, help="Put samples of a batch one behind the other, without padding.")
@click.option("--epoch", type=click.IntRange(0), help="First epoch, 0 by default.")
@click.option("--repeat", type=click.IntRange(1), metavar="N", help="Treat N successive epochs as one.")
@click.option("--take", type=click.IntRange(0), metavar="N", help="Stop after N samples, or at the end of the epoch.")
@click.option("--resume", type=click.Path(), metavar="FILE", help="Continue from the state in FILE.")
@click.option(
    "--extend",
    is_flag=True,
    help="With --resume: the dataset may have other shards than before. What is left comes first, then what is new.",
)
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
    max_duration: float | None,
    max_tokens: int | None,
    pack: bool,
    epoch: int | None,
    repeat: int | None,
    take: int | None,
    resume: str | None,
    extend: bool,
    until: str | None,
    save_state: str | None,
    kind: str,
    extension: str | None,
    strict: bool,
    read_options: ReadOptions,
) -> int:
    """Write samples, in order or shuffled, and save the state.

    The format paths writes the path of each sample's first file, as in `touchfs ls`. If you get fewer samples than
    --take, the epoch is over, and the next call starts a new one. An expression compares fields, as in
    'score > 0.5 and label == "cat"': see docs/control-files.md. If a shard has errors, the samples of the others are
    written, and the exit status is 1.

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
    if extend and resume is None:
        raise UsageError("--extend is for a state: give --resume, too")
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
    ranks: dict[str, Any] = {"rank": rank, "world_size": world_size, "tail": tail, "global_batch": global_batch}
    order = {**ranks, "partition": "stride" if global_batch is None else BATCHES}
    by_length = pack or max_duration is not None or max_tokens is not None
    graph: Any = node.LazyIndexedManifestIterator(
        samples,
        seed is not None,
        seed or 0,
        window=None if window is None else samples_in(int(window) if window.isdecimal() else window, samples),
        lanes=lanes,
        **({} if by_length else order),
    )
    if by_length:
        graph = node.LazyLengthBatcher(graph, max_duration, max_tokens, pack, **ranks)
    if repeat is not None:
        graph = node.LazyRepeater(graph, repeat)
    with _shown_progress(len(samples)) if by_length else nullcontext():
        if resume is not None:
            if extend and state is not None:
                state = _extended(graph, state, resume)
                node.restore_state_dict(graph, state)
            else:
                node.load_state(graph, resume)
            if graph.state_dict().get("ended"):  # the call before this one has told so
                list(graph.pairs())
        elif epoch is not None:
            graph.load_state_dict(graph.begin(epoch).state())
        pairs = graph.pairs() if until is None or state is None else graph.seen(state["state"])
    output = sys.stdout.buffer
    write = _WRITERS[kind]
    if extension is not None:
        write = partial(_write_paths, path_of=partial(path_of, extension=extension))
    items = ((token, make()) for token, make in islice(pairs, take))
    if by_length:
        _write_batches(items, output, kind, write, is_repeated=repeat is not None)
    else:
        write(items, output)
    output.flush()
    if save_state is not None:
        node.save_state(graph, save_state)
    return 1 if why_unservable(dataset, strict=True) else 0


def _extended(graph: Any, state: Any, path: str) -> Any:
    """Return the state of a file for the dataset as it is now, and tell what comes."""
    from touchfs.node.graph.state import extended_state, say_growth

    try:
        state = extended_state(graph, state)
    except (FormatError, UsageError) as error:
        raise error.at(path) from None
    sys.stderr.write(f"touchfs: {say_growth(state)}\n")
    return state


@contextmanager
def _shown_progress(samples: int) -> Iterator[None]:
    """Show how far the pass over the lengths of all samples is."""
    with (
        progress_bar("forming batches", SAMPLES) as progress,
        ProgressTotal(progress, samples) as total,
        listening(total.add, samples),
    ):
        yield


def _write_batches(batches: Pairs, output: BinaryIO, kind: str, write: Writer, is_repeated: bool) -> None:
    in_batches = (_samples_of(token, samples, is_repeated) for token, samples in batches)
    if kind == "tar":
        write(chain.from_iterable(in_batches), output)
        return
    for number, pairs in enumerate(in_batches):
        if kind == "json":
            _write_json(pairs, output, number)
        else:
            write(pairs, output)
            output.write(b"\n")


def _samples_of(token: Any, samples: list[Any], is_repeated: bool) -> Pairs:
    tokens = [(token[0], each) for each in token[1]] if is_repeated else token
    return zip(tokens, samples, strict=True)


def _write_paths(pairs: Pairs, output: BinaryIO, path_of: Callable[[Any], bytes] | None = None) -> None:
    for _, sample in pairs:
        for extension in islice(sample, 1):
            path = os.fsencode(sample.path(extension)) if path_of is None else path_of(sample)
            output.write(path + b"\n")


def _write_json(pairs: Pairs, output: BinaryIO, batch: int | None = None) -> None:
    for token, sample in pairs:
        record = {
            "token": token,
            "key": sample.key,
            "shard": sample.shard,
            "ordinal": sample.ordinal,
            "files": {extension: sample.path(extension) for extension in sample},
        }
        if batch is not None:
            record["batch"] = batch
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


_WRITERS: dict[str, Writer] = {"paths": _write_paths, "json": _write_json, "tar": _write_tar}
