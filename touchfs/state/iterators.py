"""Named iterators over a dataset, kept in its state store, for any number of processes at once.

A step is one transaction: the state is loaded, the graph's iteration restored from it, which takes no longer at the end
of an epoch than at its start, samples are taken, and the state after them stored. So two never get the same sample, and
whoever dies half way has taken none. Nothing is decoded: what is told of a sample is in the catalogs.

At the end of an epoch a step tells nothing, once; the one after it begins the next epoch.

A state, as told and taken, is that of `touchfs.node.collect_state_dict` for the graph that the spec stands for, with
`"kind": "state"` in it. An *item token*, `"kind": "item"`, names a sample and the dataset.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from touchfs.dataset import Dataset
from touchfs.dataset_samples import DatasetSamples
from touchfs.errors import FullError, NotFoundError, StateError, TouchfsError, UsageError
from touchfs.node.state import collect_state_dict, restore_state_dict
from touchfs.shown_sample import ShownSample
from touchfs.state import writes
from touchfs.state.live_graph import BATCH_NOWAIT, LiveGraph
from touchfs.state.positioning import start_of, state_at_item
from touchfs.state.progress import epoch_of, progress_of
from touchfs.state.selected import Selector
from touchfs.state.spec import Spec, check_batch, parse_spec
from touchfs.state.store import StateStore, WouldWaitError
from touchfs.state.telling import tell
from touchfs.token import State, from_json, to_json

# How long a request to make or remove a directory may come again.
REPEATED_SECONDS = 60.0
# Ids are part of inode numbers.
IDS_MAX = (1 << 20) - 1
NAME_MAX = 255
_GRAPHS_KEPT = 256

WRITABLE = ("spec", "token", "batch", "reset")

T = TypeVar("T")


class _UnbuiltError(Exception):
    """The graph of this spec has to be built, outside of the transaction: that may take its time."""

    def __init__(self, iterator: int, spec: str) -> None:
        super().__init__(spec)
        self.iterator = iterator
        self.spec = spec


class Iterators:
    """The iterators of a store over a dataset. `prefix` stands before the paths that are told."""

    def __init__(self, store: StateStore, dataset: Dataset, prefix: str = "") -> None:
        self._store = store
        self._dataset = dataset
        self._prefix = prefix
        self._selector = Selector(dataset, os.path.join(os.path.dirname(store.path), "survivors"))
        self._graphs: dict[int, LiveGraph] = {}
        self._reads: Mapping[str, Callable[[int], str]] = {
            "spec": lambda iterator: self._row(iterator)[0] + "\n",
            "next": self._next,
            "peek": self._peek,
            "token": lambda iterator: to_json({"kind": "state", **self._state(iterator)}) + "\n",
            "position": lambda iterator: f"{self._progress(iterator)[0]}\n",
            "len": lambda iterator: f"{_length(self._progress(iterator)[1])}\n",
            "epoch": lambda iterator: f"{epoch_of(self._state(iterator)['state'])}\n",
            "batch": lambda iterator: f"{self._graph(iterator).spec.batch}\n",
            "reset": lambda iterator: "",
            "error": lambda iterator: self._row(iterator)[2],
        }

    def create(self, name: str, maker: str = "") -> int:
        """A new iterator over all samples, in order. `maker` is who asks: asked for again within a minute by the same
        one, it is the one there is; else UsageError tells that there is one.
        """
        key = _checked(name)
        with self._store.transaction() as connection:
            found = connection.execute("SELECT id, made, maker FROM iterator WHERE name = ?", (key,)).fetchone()
            if found is not None:
                if maker and found[2] == maker and abs(time.time() - found[1]) < REPEATED_SECONDS:
                    return int(found[0])
                raise ExistsError(f"there is an iterator {name!r} already")
            inserted = connection.execute(
                "INSERT INTO iterator (name, spec, made, maker) VALUES (?, ?, ?, ?)",
                (key, str(Spec()), time.time(), maker),
            )
            connection.execute("DELETE FROM removed_iterator WHERE name = ?", (key,))
            if (inserted.lastrowid or 0) > IDS_MAX:
                raise FullError(f"{IDS_MAX} iterators were made: delete the state store", path=self._store.path)
            return int(inserted.lastrowid or 0)

    def remove(self, name: str, remover: str = "") -> None:
        key, now = _checked(name), time.time()
        with self._store.transaction() as connection:
            if connection.execute("DELETE FROM iterator WHERE name = ?", (key,)).rowcount:
                connection.execute("DELETE FROM removed_iterator WHERE removed < ?", (now - REPEATED_SECONDS,))
                connection.execute("INSERT OR REPLACE INTO removed_iterator VALUES (?, ?, ?)", (key, now, remover))
                return
            again = connection.execute(
                "SELECT 1 FROM removed_iterator WHERE name = ? AND remover = ? AND removed > ?",
                (key, remover, now - REPEATED_SECONDS),
            ).fetchone()
            if not remover or again is None:
                raise NotFoundError(f"there is no iterator {name!r}")

    def find(self, name: str) -> int | None:
        named = self.named(name.encode(errors="surrogateescape"))
        return named[0][1] if named else None

    def name_of(self, iterator: int) -> str | None:
        with self._store.transaction() as connection:
            found = connection.execute("SELECT name FROM iterator WHERE id = ?", (iterator,)).fetchone()
        return None if found is None else bytes(found[0]).decode()

    def named(self, name: bytes | None = None) -> list[tuple[bytes, int]]:
        """The iterators with their ids, in the order they were made; or the one of a name."""
        of_one, wanted = ("", ()) if name is None else (" WHERE name = ?", (name,))
        with self._store.transaction() as connection:
            found = connection.execute(f"SELECT name, id FROM iterator{of_one} ORDER BY id", wanted).fetchall()
        return [(bytes(name), int(iterator)) for name, iterator in found]

    def names(self) -> list[str]:
        return [name.decode() for name, _ in self.named()]

    def read(self, iterator: int, file: str) -> str:
        """The text of one of its files; that of `next` is a step. Why there is none, `error` tells from then on."""
        try:
            return self._built(lambda: self._read(iterator, file))
        except (StateError, NotFoundError):
            raise
        except TouchfsError as error:
            self._note(iterator, file, error)
            raise

    def read_open(self, open_id: int, make: Callable[[str], bytes], *, wait: bool = True) -> bytes:
        """The text of an open of a control file, which is `ID/FILE` for one of an iterator. `make` makes the others.

        Without `wait` it raises WouldWaitError when that would take more than some microseconds.
        """
        wanted: list[tuple[int, str]] = []

        def made(path: str) -> bytes:
            iterator, _, file = path.partition("/")
            if not file:
                return make(path)
            wanted[:] = [(int(iterator), file)]
            if not wait and file in ("next", "peek") and self._graph(int(iterator)).spec.batch > BATCH_NOWAIT:
                raise WouldWaitError
            return self._read(int(iterator), file).encode(errors="surrogateescape")

        try:
            return self._built(lambda: self._store.text(open_id, made, wait=wait), wait=wait)
        except (StateError, NotFoundError):
            raise
        except TouchfsError as error:
            if not wait:
                raise WouldWaitError from error
            if wanted:
                self._note(*wanted[0], error)
            raise

    def write(self, iterator: int, file: str, value: Any) -> None:
        """Write a value to one of its files. UsageError says what is wrong with it; then nothing is changed."""
        try:
            self._built(lambda: self._write(iterator, file, value))
        except (StateError, NotFoundError):
            raise
        except TouchfsError as error:
            self._note(iterator, file, error)
            raise error if isinstance(error, UsageError) else UsageError(str(error)) from error

    def write_open(self, open_id: int, offset: int, data: bytes) -> None:
        """Take a piece of what is written to an open of a control file of an iterator."""

        def apply(path: str, value: Any) -> None:
            iterator, _, file = path.partition("/")
            self._write(int(iterator), file, value)

        try:
            self._built(lambda: writes.write(self._store, open_id, offset, data, apply))
        except UsageError as error:
            iterator, _, file = writes.file_of(self._store, open_id).partition("/")
            self._note(int(iterator or 0), file, error)
            raise

    def release(self, open_id: int, *, wait: bool = True) -> None:
        iterator, _, file = writes.release(self._store, open_id, wait=wait).partition("/")
        if iterator:
            self._note(int(iterator), file, UsageError("what was written was no whole JSON value: dropped"))

    def item_token(self, view: str, shard: str, ordinal: int, segment: int) -> str:
        """The token of a sample, as `token` takes it."""
        told = {"source": view, "shard": shard, "ordinal": ordinal, "segment": segment}
        return to_json({"kind": "item", "fingerprint": self._fingerprint, **told})

    @cached_property
    def _fingerprint(self) -> str:
        return DatasetSamples(self._dataset).fingerprint

    def _built(self, act: Callable[[], T], *, wait: bool = True) -> T:
        while True:
            try:
                return act()
            except _UnbuiltError as missing:
                if not wait:
                    raise WouldWaitError from None
                self._build(missing.iterator, missing.spec)

    def _build(self, iterator: int, spec: str) -> LiveGraph:
        graph = LiveGraph(spec, self._selector)
        self._graphs[iterator] = graph
        if len(self._graphs) > _GRAPHS_KEPT:
            del self._graphs[next(iter(self._graphs))]
        return graph

    def _row(self, iterator: int) -> tuple[str, str | None, str]:
        with self._store.transaction() as connection:
            found = connection.execute("SELECT spec, state, error FROM iterator WHERE id = ?", (iterator,)).fetchone()
        if found is None:
            raise NotFoundError("the iterator was removed")
        spec, state, error = found
        return spec, state, error

    def _graph(self, iterator: int) -> LiveGraph:
        return self._known(iterator, self._row(iterator)[0])

    def _known(self, iterator: int, spec: str) -> LiveGraph:
        graph = self._graphs.get(iterator)
        if graph is None or graph.spec_text != spec:
            raise _UnbuiltError(iterator, spec)
        return graph

    def _ready(self, iterator: int) -> LiveGraph:
        """Its graph, at where it is."""
        spec, state, _ = self._row(iterator)
        graph = self._known(iterator, spec)
        graph.seek(state or graph.start)
        return graph

    def _state(self, iterator: int) -> State:
        """The envelope and all."""
        graph = self._ready(iterator)
        state: State = from_json(graph.state or graph.start)
        return state

    def _progress(self, iterator: int) -> tuple[int, int | None]:
        return progress_of(self._ready(iterator).root, self._state(iterator)["state"])

    def _read(self, iterator: int, file: str) -> str:
        try:
            read = self._reads[file]
        except KeyError:
            raise NotFoundError(f"an iterator has no file {file!r}") from None
        with self._store.transaction():
            return read(iterator)

    def _next(self, iterator: int) -> str:
        graph = self._ready(iterator)
        samples, state = graph.take(graph.spec.batch)
        with self._store.transaction() as connection:
            connection.execute("UPDATE iterator SET state = ? WHERE id = ?", (state, iterator))
        return self._told(graph, samples)

    def _peek(self, iterator: int) -> str:
        graph = self._ready(iterator)
        samples, _ = graph.take(graph.spec.batch)
        return self._told(graph, samples)

    def _told(self, graph: LiveGraph, samples: list[ShownSample]) -> str:
        return tell(samples, graph.spec.output, self._prefix, self.item_token)

    def _write(self, iterator: int, file: str, value: Any) -> None:
        with self._store.transaction() as connection:
            spec_text, stored, _ = self._row(iterator)
            if file == "spec":
                spec_text, state = str(parse_spec(value)), None
                self._known(iterator, spec_text)
            elif file == "batch":
                batch = check_batch(value, "batch")
                spec_text, state = str(replace(self._known(iterator, spec_text).spec, batch=batch)), stored
            elif file == "token":
                state = self._state_of(iterator, value)
            elif file == "reset":
                state = start_of(self._known(iterator, spec_text), value)
            else:
                raise UsageError(f"{file} cannot be written: {', '.join(WRITABLE)} can")
            connection.execute(
                "UPDATE iterator SET spec = ?, state = ?, error = '' WHERE id = ?", (spec_text, state, iterator)
            )

    def _state_of(self, iterator: int, value: Any) -> str:
        """The state that a token stands for."""
        if not isinstance(value, dict):
            raise UsageError("a token is a JSON object, as `cat token` tells it")
        kind = value.get("kind", "state" if "touchfs_state" in value else None)
        graph = self._ready(iterator)
        if kind == "item":
            value = state_at_item(graph, value, self._dataset, self._fingerprint)
        elif kind != "state":
            raise UsageError(f'the kind of a token is "state" or "item", not {kind!r:.80}')
        graph.state = None
        restore_state_dict(graph.root, {name: told for name, told in value.items() if name != "kind"})
        return to_json(collect_state_dict(graph.root))

    def _note(self, iterator: int, file: str, error: TouchfsError) -> None:
        text = str(error) if str(error).startswith(file) else f"{file}: {error}"
        with self._store.transaction() as connection:
            connection.execute("UPDATE iterator SET error = ? WHERE id = ?", (text + "\n", iterator))


class ExistsError(UsageError):
    """There is one of that name."""


def _checked(name: str) -> bytes:
    try:
        key = name.encode()
    except UnicodeEncodeError:
        raise UsageError("the name of an iterator is UTF-8") from None
    if not name.isprintable() or not 0 < len(key) <= NAME_MAX or "/" in name or name in (".", "..", "README"):
        raise UsageError(f"an iterator cannot be called {name!r:.80}: choose a name of letters and digits")
    return key


def _length(length: int | None) -> str:
    return "endless" if length is None else str(length)
