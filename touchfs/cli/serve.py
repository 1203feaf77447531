"""touchfs serve"""

from __future__ import annotations

import os
import signal
import webbrowser

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import datasets_argument, open_listed
from touchfs.cli.dataset_options import ReadOptions, dataset_options, ids_option
from touchfs.cli.progress import progress_bar
from touchfs.cli.terminal import say
from touchfs.core.errors import SourceError
from touchfs.core.urls import shown
from touchfs.indexing.in_memory import discard
from touchfs.indexing.serving import why_unservable
from touchfs.posix.threads import share_freed_memory, start_thread


@click.command("serve", cls=Command)
@datasets_argument("source", "DATASET")
@click.option(
    "--http", "address", metavar="HOST:PORT", default="127.0.0.1:8080", show_default=True, help="Where to serve."
)
@click.option(
    "--token-file",
    type=click.Path(),
    metavar="FILE",
    help="Token that clients must send. FILE is for you only. [default: none, and only this machine is served]",
)
@click.option(
    "--answers",
    type=click.IntRange(1, 64),
    default=32,
    show_default=True,
    help="Answers that one client may have open at a time, of 64 in all. Behind a proxy, all clients are one: 64.",
)
@click.option("--open", "opens", is_flag=True, help="Open the dataset in the browser.")
@ids_option()
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="NAME=FILE",
    help="A state of `touchfs iterate --save-state`: pages list what it has seen, and compare two. Can be repeated.",
)
@dataset_options
def command(
    source: str,
    address: str,
    token_file: str | None,
    answers: int,
    opens: bool,
    ids: tuple[str, ...],
    states: tuple[str, ...],
    read_options: ReadOptions,
) -> None:
    """Serve a dataset over HTTP and WebDAV, read-only.

    For machines without FUSE, for browsers, and for programs that read URLs. A shard is indexed when somebody looks
    into it. A browser that opens the address sees the dataset: statistics, samples, and what is in each. Ctrl-C ends
    it.

    \b
    Example:
      touchfs serve shards/ --http 127.0.0.1:8080 &
      curl http://127.0.0.1:8080/shards/
    """
    from touchfs.explore.served import compile_pages
    from touchfs.pages.given import read_states
    from touchfs.select.ids.names import give
    from touchfs.serve.access import HttpAccess, parse_address, read_token
    from touchfs.serve.application import Application
    from touchfs.serve.served_tree import ServedTree
    from touchfs.serve.server import TreeServer

    share_freed_memory()
    place = parse_address(address)
    token = None if token_file is None else read_token(token_file)
    if token is None and not place.is_loopback:
        raise click.UsageError(f"--http {address}: other machines reach it, so it needs --token-file")
    give(ids)
    seen = read_states(states)
    with progress_bar("indexing") as progress:
        dataset = open_listed(source, read_options, progress)
    if dataset.is_indexed and (problem := why_unservable(dataset)):
        raise SourceError(problem, path=source)
    server = TreeServer(place, Application(ServedTree(dataset), HttpAccess(place.host, token), seen), answers)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    say(f"serving {shown(source)} at {server.url}")
    start_thread(compile_pages, name="pages")
    if opens:  # in a thread, as a browser of the terminal takes the request that the server answers only then
        start_thread(webbrowser.open, server.url, name="browser")
    server.serve()


def _end(*_: object) -> None:
    """End at once. Nobody needs to be waited for: neither slow clients nor data that does not answer, and blocks that
    are being written to the scratch store can be fetched again.
    """
    discard()
    os._exit(0)
