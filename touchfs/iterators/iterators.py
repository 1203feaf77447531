"""Named iterators over a dataset, kept in its state store, for any number of processes at once.

A step is one transaction: it reads the iterator's position, takes samples, which takes no longer at the end of an epoch
than at its start (`live_graph`), and stores the new position. So no two readers get the same sample, and a process that
dies during a step has taken none. Nothing is decoded: the output of a step comes from the catalogs.

At the end of an epoch one step returns no samples; the step after it begins the next epoch.

The state in the file `token` is that of `touchfs.node.collect_state_dict` for the graph of the spec, with
`"kind": "state"` added. An *item token*, `"kind": "item"`, identifies a sample and the dataset.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from touchfs.control_characters import one_line
from touchfs.dataset import Dataset
from touchfs.errors import NotFoundError, StateError, TouchfsError, UsageError, WouldWaitError
from touchfs.iterators.graphs import Graphs, UnbuiltError
from touchfs.iterators.item_tokens import ItemTokens
from touchfs.iterators.live_graph import LiveGraph
from touchfs.iterators.output import check_paths, format_output
from touchfs.iterators.registry import Registry
from touchfs.iterators.spec import check_batch, parse_spec
from touchfs.iterators.starting_states import reset_state
from touchfs.iterators.stored_positions import StoredPositions, iterator_row
from touchfs.select.selection import Selector
from touchfs.select.survivors import survivors_directory
from touchfs.store import writes
from touchfs.store.opens import OpenFile, Opens
from touchfs.store.patience import Patience, current_patience, with_patience
from touchfs.store.problem import SharedProblem
from touchfs.store.store import StateStore
from touchfs.token import to_json

# Larger steps run in a thread.
BATCH_NOWAIT = 64

WRITABLE = ("spec", "token", "batch", "reset")

Read = Callable[[sqlite3.Connection, int], bytes]


class Iterators(Registry):
    """The iterators of a store over a dataset.

    `prefix` is prepended to output paths; `use_plan` is called with each plan under `merged/` that a spec selects.
    """

    def __init__(
        self,
        store: StateStore,
        dataset: Dataset,
        prefix: str = "",
        problem: SharedProblem | None = None,
        use_plan: Callable[[str], None] = lambda plan: None,
    ) -> None:
        super().__init__(store)
        self._dataset = dataset
        self._prefix = prefix
        self._selector = Selector(dataset, survivors_directory(os.path.dirname(store.path)), use_plan)
        self._graphs = Graphs(self._selector)
        self._tokens = ItemTokens(dataset)
        self._positions = StoredPositions(self._graphs, dataset, self._tokens)
        self._problem = SharedProblem() if problem is None else problem
        self._reads: Mapping[str, Read] = {
            "spec": lambda connection, iterator: iterator_row(connection, iterator)[0].encode() + b"\n",
            "next": self._next,
            "peek": self._peek,
            "token": lambda *of: (
                to_json({"kind": "state", **self._positions.graph_at_position(*of).state()}).encode() + b"\n"
            ),
            "position": lambda *of: b"%d\n" % self._positions.graph_at_position(*of).progress()[0],
            "len": lambda *of: _length(self._positions.graph_at_position(*of).progress()[1]),
            "epoch": lambda *of: b"%d\n" % self._positions.graph_at_position(*of).epoch(),
            "batch": lambda *of: b"%d\n" % self._positions.graph(*of).spec.batch,
            "reset": lambda connection, iterator: b"",
            "error": lambda connection, iterator: os.fsencode(iterator_row(connection, iterator)[3]),
        }

    def read(self, iterator: int, file: str) -> str:
        """Return the text of one of its files; reading `next` makes a step. On failure the file `error` has the reason.

        Raises NotFoundError if there is no such iterator or file, StateError if the store cannot be used, and
        UsageError or SourceError if there is no such text.
        """

        def act(connection: sqlite3.Connection) -> bytes:
            return self._read(connection, iterator, file)

        if file != "next":
            return os.fsdecode(self.look(iterator, file))
        with self._noting(iterator, file, changes=True):
            return os.fsdecode(self._graphs.with_built(lambda: self._store.run(act)))

    def look(self, iterator: int, file: str, *, wait: bool = True) -> bytes:
        """Return the text of one of its files except `next`, without writing and without waiting for other processes.

        If the store cannot be used, the text of `error` is the reason. Without `wait` it raises WouldWaitError as
        `read_open`.
        """

        def act() -> bytes:
            with self._store.transaction(wait=wait, write=False) as connection:
                return self._read(connection, iterator, file)

        if not wait:
            return self._at_once(iterator, act)
        if file == "error":
            return self._error(act)
        with self._noting(iterator, file):
            return self._graphs.with_built(act)

    def _error(self, read: Callable[[], bytes]) -> bytes:
        try:
            if text := read():
                return text
            problem = self._problem.text()
        except StateError as error:
            problem = str(error)
        return os.fsencode(f"{problem}\n") if problem else b""

    def read_open(self, opens: Opens, open_file: OpenFile, *, wait: bool = True) -> bytes:
        """Return the text of an open file of an iterator.

        Without `wait` it raises WouldWaitError if that would take more than some microseconds.
        """

        open_id, iterator, file = open_file

        def make(connection: sqlite3.Connection) -> bytes:
            return self._read(connection, iterator, file)

        if not wait:
            return self._at_once(iterator, lambda: opens.text(open_id, make, wait=False))
        with self._noting(iterator, file, changes=True):
            return self._graphs.with_built(lambda: opens.text(open_id, make))

    def _at_once(self, iterator: int, act: Callable[[], bytes]) -> bytes:
        """Return what `act` returns if that takes only microseconds. Raises WouldWaitError otherwise and on errors.

        A thread then repeats it, with time to wait, and records the error.
        """
        graph = self._graphs.get(iterator)
        if self._problem or (graph is not None and graph.spec.batch > BATCH_NOWAIT):
            raise WouldWaitError
        try:
            return act()
        except NotFoundError:
            raise
        except (TouchfsError, UnbuiltError) as error:
            raise WouldWaitError from error

    def precompute(self, opens: Opens, open_file: OpenFile) -> None:
        """Compute the text of an open file before it is read, in an uncommitted transaction of the store.

        Call it when the process is idle. It does nothing if `read_open` would have to wait.
        """
        open_id, iterator, file = open_file
        graph, read = self._graphs.get(iterator), self._reads[file]
        if graph is None or graph.spec.batch > BATCH_NOWAIT:
            return
        try:
            opens.precompute(open_id, lambda connection: read(connection, iterator))
        except (WouldWaitError, TouchfsError, UnbuiltError):
            return

    def precompute_step(self, iterator: int) -> None:
        """Compute the step after the latest one of this process, without the store.

        The next step uses the result if the iterator is then still at that position. Call it when no thread uses the
        iterators.
        """
        graph = self._graphs.get(iterator)
        if graph is not None and graph.is_ready and graph.spec.batch <= BATCH_NOWAIT:
            with suppress(TouchfsError):
                step = graph.step()
                graph.precomputed = step, self._output(graph, step.tokens)

    def write(self, iterator: int, file: str, value: Any) -> None:
        """Write a value to one of its files. Raises UsageError for a wrong value; then nothing changes."""
        try:
            with self._noting(iterator, file, changes=True):
                self._graphs.with_built(lambda: self._write(iterator, file, value))
        except (StateError, NotFoundError):
            raise
        except TouchfsError as error:
            raise error if isinstance(error, UsageError) else UsageError(str(error)) from error

    def write_open(self, opens: Opens, open_file: OpenFile, piece: writes.Piece) -> None:
        """Take a piece of a value that is written to an open file of an iterator. Raises UsageError for a wrong one."""
        open_id, iterator, file = open_file

        def apply(value: Any) -> None:
            self._write(iterator, file, value)

        with self._noting(iterator, file, changes=True):
            try:
                problem = self._graphs.with_built(lambda: writes.write(opens, open_id, piece, apply))
            except (StateError, NotFoundError):
                raise
            except TouchfsError as error:
                writes.refuse(opens, open_id, piece, str(error))
                raise error if isinstance(error, UsageError) else UsageError(str(error)) from error
            if problem:
                raise UsageError(problem)

    def release(self, opens: Opens, open_file: OpenFile) -> None:
        """Release an open file that may have been written."""
        if opens.close(open_file.id):
            self.forget(opens, open_file)

    def forget(self, opens: Opens, open_file: OpenFile, *, wait: bool = True) -> None:
        """Delete the row of a closed file, and record an error if the value written to it was incomplete."""
        open_id, iterator, file = open_file
        error = UsageError("the written JSON value was incomplete: dropped")
        opens.forget_written(open_id, lambda: self._note(iterator, file, error), wait=wait)

    def _read(self, connection: sqlite3.Connection, iterator: int, file: str) -> bytes:
        try:
            read = self._reads[file]
        except KeyError:
            raise NotFoundError(f"an iterator has no file {file!r}") from None
        return read(connection, iterator)

    def _next(self, connection: sqlite3.Connection, iterator: int) -> bytes:
        graph = self._graphs.get(iterator)
        if graph is not None and graph.precomputed is not None:
            (step, text), graph.precomputed = graph.precomputed, None
            found = connection.execute(
                "UPDATE iterator SET base = ?, steps = ? WHERE id = ? AND base = ? AND steps = ? AND spec = ?",
                (*step.after, iterator, *step.before, graph.spec_text),
            )
            if found.rowcount:
                return text
        graph = self._positions.graph_at_position(connection, iterator)
        step = graph.step()
        connection.execute("UPDATE iterator SET base = ?, steps = ? WHERE id = ?", (*step.after, iterator))
        return self._output(graph, step.tokens)

    def _output(self, graph: LiveGraph, tokens: list[Any]) -> bytes:
        return format_output(graph, tokens, self._prefix, self._tokens.token)

    def _peek(self, connection: sqlite3.Connection, iterator: int) -> bytes:
        graph = self._positions.graph_at_position(connection, iterator)
        return self._output(graph, graph.peek())

    def _write(self, iterator: int, file: str, value: Any) -> None:
        def act(connection: sqlite3.Connection) -> None:
            spec_text, steps = iterator_row(connection, iterator)[0], 0
            if file == "spec":
                spec = parse_spec(value)
                check_paths(spec.output, self._prefix)
                state, steps = self._positions.kept_position(connection, iterator, spec)
                spec_text = str(spec)
            elif file == "batch":
                spec = replace(self._positions.graph(connection, iterator).spec, batch=check_batch(value, "batch"))
                self._positions.graph_at_position(connection, iterator)  # raises where the position is lost
                state, steps = self._positions.kept_position(connection, iterator, spec)
                spec_text = str(spec)
            elif file == "token":
                state = self._positions.token_state(connection, iterator, value)
            elif file == "reset":
                state = reset_state(self._graphs.of(iterator, spec_text), value)
            else:
                raise UsageError(f"{file} cannot be written: {', '.join(WRITABLE)} can")
            connection.execute(
                "UPDATE iterator SET spec = ?, base = ?, steps = ?, error = '' WHERE id = ?",
                (spec_text, state, steps, iterator),
            )

        self._store.run(act)

    @contextmanager
    def _noting(self, iterator: int, file: str, *, changes: bool = False) -> Iterator[None]:
        """Record an error of the block for the file `error`: in the store, or in `_problem` if the store failed."""
        try:
            yield
        except StateError as error:
            if changes:
                self._problem.set(str(error))
            raise
        except NotFoundError:
            raise
        except TouchfsError as error:
            with suppress(StateError):  # the caller gets the first error; one that only looks does not wait here
                patience = current_patience() if changes else Patience(0)
                with_patience(patience, self._note, iterator, file, error)
            raise
        if changes:
            self._problem.clear()

    def _note(self, iterator: int, file: str, error: TouchfsError) -> None:
        text = one_line(str(error) if str(error).startswith(file) else f"{file}: {error}")
        self._store.run(
            lambda connection: connection.execute("UPDATE iterator SET error = ? WHERE id = ?", (text + "\n", iterator))
        )


def _length(length: int | None) -> bytes:
    return b"endless\n" if length is None else b"%d\n" % length
