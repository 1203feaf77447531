"""Named iterators over a dataset, kept in its state store, for any number of processes at once.

A step is one transaction: it reads where the iterator is, takes samples, which takes no longer at the end of an epoch
than at its start (`live_graph`), and stores where it is then. So two never get the same sample, and whoever dies half
way has taken none. Nothing is decoded: what is told of a sample is in the catalogs.

At the end of an epoch a step tells nothing, once; the one after it begins the next epoch.

A state, as told and taken, is that of `touchfs.node.collect_state_dict` for the graph that the spec stands for, with
`"kind": "state"` in it. An *item token*, `"kind": "item"`, names a sample and the dataset.
"""

from __future__ import annotations

import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from touchfs.dataset import Dataset
from touchfs.dataset.samples import DatasetSamples
from touchfs.errors import FormatError, NotFoundError, StateError, TouchfsError, UsageError
from touchfs.node.state import enclose, resume
from touchfs.state import writes
from touchfs.state.database import WouldWaitError
from touchfs.state.live_graph import LiveGraph
from touchfs.state.opens import Opened, Opens
from touchfs.state.positioning import start_of, state_at_item
from touchfs.state.progress import epoch_of, progress_of
from touchfs.state.registry import Registry
from touchfs.state.selected import Selector
from touchfs.state.spec import Spec, check_batch, is_same_pass, parse_spec
from touchfs.state.store import StateStore
from touchfs.state.telling import tell
from touchfs.token import from_json, to_json

_GRAPHS_KEPT = 256
# A step that takes more is for a thread.
BATCH_NOWAIT = 64

WRITABLE = ("spec", "token", "batch", "reset")

T = TypeVar("T")
Read = Callable[[sqlite3.Connection, int], bytes]


class _UnbuiltError(Exception):
    """The graph of this spec has to be built, outside of the transaction: that may take its time."""

    def __init__(self, iterator: int, spec: str) -> None:
        super().__init__(spec)
        self.iterator = iterator
        self.spec = spec


class Iterators(Registry):
    """The iterators of a store over a dataset. `prefix` stands before the paths that are told."""

    def __init__(self, store: StateStore, dataset: Dataset, prefix: str = "") -> None:
        super().__init__(store)
        self._dataset = dataset
        self._prefix = prefix
        self._selector = Selector(dataset, os.path.join(os.path.dirname(store.path), "survivors"))
        self._graphs: OrderedDict[int, LiveGraph] = OrderedDict()
        self._reads: Mapping[str, Read] = {
            "spec": lambda connection, iterator: _row(connection, iterator)[0].encode() + b"\n",
            "next": self._next,
            "peek": self._peek,
            "token": lambda *of: to_json({"kind": "state", **self._ready(*of).state()}).encode() + b"\n",
            "position": lambda *of: b"%d\n" % _progress(self._ready(*of))[0],
            "len": lambda *of: _length(_progress(self._ready(*of))[1]),
            "epoch": lambda *of: b"%d\n" % epoch_of(self._ready(*of).state()["state"]),
            "batch": lambda *of: b"%d\n" % self._graph(*of).spec.batch,
            "reset": lambda connection, iterator: b"",
            "error": lambda connection, iterator: os.fsencode(_row(connection, iterator)[3]),
        }

    def read(self, iterator: int, file: str) -> str:
        """The text of one of its files; that of `next` is a step. Why there is none, `error` tells from then on."""

        def act() -> bytes:
            with self._store.transaction() as connection:
                return self._read(connection, iterator, file)

        with self._noting(iterator, file):
            return os.fsdecode(self._built(act))

    def read_open(self, opens: Opens, opened: Opened, *, wait: bool = True) -> bytes:
        """The text of an open of one of its files.

        Without `wait` it raises WouldWaitError when that would take more than some microseconds.
        """

        open_id, iterator, file = opened

        def make(connection: sqlite3.Connection) -> bytes:
            return self._read(connection, iterator, file)

        if wait:
            with self._noting(iterator, file):
                return self._built(lambda: opens.text(open_id, make))
        graph = self._graphs.get(iterator)
        if graph is not None and graph.spec.batch > BATCH_NOWAIT:
            raise WouldWaitError
        try:
            return opens.text(open_id, make, wait=False)
        except (StateError, NotFoundError):
            raise
        except (TouchfsError, _UnbuiltError) as error:
            raise WouldWaitError from error

    def make_ahead(self, opens: Opens, opened: Opened) -> None:
        """Make the text of an open before it is read, while there is nothing else to do: as an attempt, and only what
        `read_open` would make without waiting.
        """
        open_id, iterator, file = opened
        graph, read = self._graphs.get(iterator), self._reads[file]
        if graph is None or graph.spec.batch > BATCH_NOWAIT:
            return
        try:
            opens.make_ahead(open_id, lambda connection: read(connection, iterator))
        except (WouldWaitError, TouchfsError, _UnbuiltError):
            return

    def work_out(self, iterator: int) -> None:
        """The step behind the last one that was made here, without the store: if the iterator is still at that place
        when a step is asked for, this one is made. For when no thread is at the iterators.
        """
        graph = self._graphs.get(iterator)
        if graph is not None and graph.is_ready and graph.spec.batch <= BATCH_NOWAIT:
            with suppress(TouchfsError):
                step = graph.step()
                graph.worked_out = step, self._told(graph, step.tokens)

    def write(self, iterator: int, file: str, value: Any) -> None:
        """Write a value to one of its files. UsageError says what is wrong with it; then nothing is changed."""
        try:
            with self._noting(iterator, file):
                self._built(lambda: self._write(iterator, file, value))
        except (StateError, NotFoundError):
            raise
        except TouchfsError as error:
            raise error if isinstance(error, UsageError) else UsageError(str(error)) from error

    def write_open(self, opened: Opened, piece: writes.Piece) -> None:
        """Take a piece of what is written to an open of one of its files."""
        open_id, iterator, file = opened

        def apply(value: Any) -> None:
            self._write(iterator, file, value)

        with self._noting(iterator, file):
            try:
                answer = self._built(lambda: writes.write(self._store, open_id, piece, apply))
            except (StateError, NotFoundError):
                raise
            except TouchfsError as error:
                writes.refuse(self._store, open_id, piece, str(error))
                raise error if isinstance(error, UsageError) else UsageError(str(error)) from error
            if answer:
                raise UsageError(answer)

    def release(self, opens: Opens, opened: Opened, *, wait: bool = True) -> None:
        """Release an open of a file that may have been written."""
        open_id, iterator, file = opened
        with self._store.transaction(wait=wait):
            if writes.forget(self._store, open_id):
                self._note(iterator, file, UsageError("what was written was no whole JSON value: dropped"))
            # A write that is sent again is not to find it.
            opens.release(open_id, wait=wait)

    def item_token(self, view: str, shard: str, ordinal: int, segment: int) -> str:
        """The token of a sample, as `token` takes it."""
        told = {"source": view, "shard": shard, "ordinal": ordinal, "segment": segment}
        return to_json({"kind": "item", "fingerprint": self._fingerprint, **told})

    @cached_property
    def _fingerprint(self) -> str:
        return DatasetSamples(self._dataset).fingerprint

    def _built(self, act: Callable[[], T]) -> T:
        while True:
            try:
                return act()
            except _UnbuiltError as missing:
                self._graphs[missing.iterator] = LiveGraph(missing.spec, self._selector)
                if len(self._graphs) > _GRAPHS_KEPT:
                    with suppress(KeyError):  # other threads drop some too
                        self._graphs.popitem(last=False)

    def _graph(self, connection: sqlite3.Connection, iterator: int) -> LiveGraph:
        return self._known(iterator, _row(connection, iterator)[0])

    def _known(self, iterator: int, spec: str) -> LiveGraph:
        graph = self._graphs.get(iterator)
        if graph is None or graph.spec_text != spec:
            raise _UnbuiltError(iterator, spec)
        return graph

    def _ready(self, connection: sqlite3.Connection, iterator: int) -> LiveGraph:
        """Its graph, at where it is."""
        spec, base, steps, _ = _row(connection, iterator)
        graph = self._known(iterator, spec)
        try:
            graph.seek(base or graph.start, steps)
        except (UsageError, FormatError) as error:
            raise UsageError(_lost(base or "")) from error
        return graph

    def _read(self, connection: sqlite3.Connection, iterator: int, file: str) -> bytes:
        try:
            read = self._reads[file]
        except KeyError:
            raise NotFoundError(f"an iterator has no file {file!r}") from None
        return read(connection, iterator)

    def _next(self, connection: sqlite3.Connection, iterator: int) -> bytes:
        graph = self._graphs.get(iterator)
        if graph is not None and graph.worked_out is not None:
            (step, text), graph.worked_out = graph.worked_out, None
            found = connection.execute(
                "UPDATE iterator SET base = ?, steps = ? WHERE id = ? AND base = ? AND steps = ? AND spec = ?",
                (*step.after, iterator, *step.before, graph.spec_text),
            )
            if found.rowcount:
                return text
        graph = self._ready(connection, iterator)
        step = graph.step()
        connection.execute("UPDATE iterator SET base = ?, steps = ? WHERE id = ?", (*step.after, iterator))
        return self._told(graph, step.tokens)

    def _told(self, graph: LiveGraph, tokens: list[Any]) -> bytes:
        return tell(graph, tokens, self._prefix, self.item_token)

    def _peek(self, connection: sqlite3.Connection, iterator: int) -> bytes:
        graph = self._ready(connection, iterator)
        return self._told(graph, graph.peek())

    def _write(self, iterator: int, file: str, value: Any) -> None:
        with self._store.transaction() as connection:
            spec_text, steps = _row(connection, iterator)[0], 0
            if file == "spec":
                spec = parse_spec(value)
                state, steps = self._place_for(connection, iterator, spec)
                spec_text = str(spec)
            elif file == "batch":
                spec = replace(self._graph(connection, iterator).spec, batch=check_batch(value, "batch"))
                self._ready(connection, iterator)  # raises where the position is lost
                state, steps = self._place_for(connection, iterator, spec)
                spec_text = str(spec)
            elif file == "token":
                state = self._state_of(connection, iterator, value)
            elif file == "reset":
                state = start_of(self._known(iterator, spec_text), value)
            else:
                raise UsageError(f"{file} cannot be written: {', '.join(WRITABLE)} can")
            connection.execute(
                "UPDATE iterator SET spec = ?, base = ?, steps = ?, error = '' WHERE id = ?",
                (spec_text, state, steps, iterator),
            )

    def _place_for(self, connection: sqlite3.Connection, iterator: int, spec: Spec) -> tuple[str | None, int]:
        """Return the base and the steps that an iterator gets with a new spec.

        They are those of today if the spec goes over the same samples in the same order, so that a loop that is
        started again may write its spec again. Else, or where today's position is lost, they are the start.
        """
        old, base, steps, _ = _row(connection, iterator)
        if not is_same_pass(spec, parse_spec(from_json(old))):
            self._known(iterator, str(spec))
            return None, 0
        graph = self._known(iterator, old)
        try:
            graph.seek(base or graph.start, steps)
        except (UsageError, FormatError):
            return None, 0
        # Steps are counted in batches.
        return (base, steps) if spec.batch == graph.spec.batch else (to_json(graph.state()), 0)

    def _state_of(self, connection: sqlite3.Connection, iterator: int, value: Any) -> str:
        """The state that a token stands for."""
        if not isinstance(value, dict):
            raise UsageError("a token is a JSON object, as `cat token` tells it")
        kind = value.get("kind", "state" if "touchfs_state" in value else None)
        if kind == "item":
            graph = self._ready(connection, iterator)
            value = state_at_item(graph, value, self._dataset, self._fingerprint)
        elif kind == "state":
            graph = self._graph(connection, iterator)
        else:
            raise UsageError(f'the kind of a token is "state" or "item", not {kind!r:.80}')
        state = {name: told for name, told in value.items() if name != "kind"}
        return to_json(enclose(graph.root, resume(graph.root, state).state()))

    @contextmanager
    def _noting(self, iterator: int, file: str) -> Iterator[None]:
        """An error is told by `error` from then on."""
        try:
            yield
        except (StateError, NotFoundError):
            raise
        except TouchfsError as error:
            self._note(iterator, file, error)
            raise

    def _note(self, iterator: int, file: str, error: TouchfsError) -> None:
        text = str(error) if str(error).startswith(file) else f"{file}: {error}"
        with self._store.transaction() as connection:
            connection.execute("UPDATE iterator SET error = ? WHERE id = ?", (text + "\n", iterator))


def _row(connection: sqlite3.Connection, iterator: int) -> tuple[str, str | None, int, str]:
    """Its spec, the base that it is so many steps behind, and its error."""
    found = connection.execute("SELECT spec, base, steps, error FROM iterator WHERE id = ?", (iterator,)).fetchone()
    if found is None:
        raise NotFoundError("the iterator was removed")
    spec, base, steps, error = found
    return spec, base, steps, error


def _lost(base: str) -> str:
    """What is said when the stored position cannot be gone to, as the dataset is another one."""
    try:
        epoch = f"in epoch {epoch_of(from_json(base)['state'])}, "
    except (KeyError, TypeError, FormatError):
        epoch = ""
    return (
        "the dataset has changed since: put the old one back, or begin anew by writing to reset "
        f'1 or {{"epoch": N}}; it was {epoch}at the state {base}'
    )


def _progress(graph: LiveGraph) -> tuple[int, int | None]:
    return progress_of(graph.root, graph.state()["state"])


def _length(length: int | None) -> bytes:
    return b"endless\n" if length is None else b"%d\n" % length
