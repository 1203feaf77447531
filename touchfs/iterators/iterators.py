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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from touchfs.core.errors import NotFoundError, StateError, TouchfsError, UsageError, WouldWaitError
from touchfs.dataset import Dataset
from touchfs.iterators.error_notes import ErrorNotes
from touchfs.iterators.graphs import Graphs, UnbuiltError
from touchfs.iterators.item_tokens import ItemTokens
from touchfs.iterators.iterator_files import ITERATOR_FILES, WRITABLE
from touchfs.iterators.output import OutputLines
from touchfs.iterators.prefetch import Prefetch
from touchfs.iterators.registry import Registry
from touchfs.iterators.stored_positions import StoredPosition
from touchfs.posix.memory.shared import SharedText
from touchfs.select.selector import Selector
from touchfs.select.survivors import survivors_directory
from touchfs.source.counts import count
from touchfs.store.iterator_store import Connection, IteratorStore
from touchfs.store.patience import without_waiting

# Larger steps run in a thread.
BATCH_NOWAIT = 64


class Iterators(Registry):
    """The iterators of a store over a dataset.

    `prefix` is prepended to output paths; `use_plan` is called with each plan under `merged/` that a spec selects.
    Each step is followed by a `prefetch` of what comes next.
    """

    def __init__(
        self,
        store: IteratorStore,
        dataset: Dataset,
        prefix: str = "",
        problem: SharedText | None = None,
        use_plan: Callable[[str], None] = lambda plan: None,
        prefetch: Prefetch | None = None,
    ) -> None:
        super().__init__(store)
        self._prefetch = prefetch
        self.graphs = Graphs(Selector(dataset, survivors_directory(store.directory), use_plan))
        tokens = ItemTokens(dataset)
        self._at = partial(StoredPosition, self.graphs, tokens, OutputLines(prefix, tokens.token))
        self.notes = ErrorNotes(store, SharedText() if problem is None else problem)

    def read(self, iterator: int, file: str) -> str:
        """Return the text of one of its files; reading `next` makes a step. On failure the file `error` has the reason.

        Raises NotFoundError if there is no such iterator or file, StateError if the store cannot be used, and
        UsageError or SourceError if there is no such text.
        """
        if file != "next":
            return os.fsdecode(self.look(iterator, file))
        with self.notes.noting(iterator, file, changes=True):
            text = self.graphs.with_built(
                lambda: self._store.run(lambda connection: self.text(connection, iterator, file))
            )
        self.stepped(iterator)
        return os.fsdecode(text)

    def stepped(self, iterator: int) -> None:
        """Count a step, and prefetch what comes after it. Call it once the step is committed."""
        count("iterator_steps")
        if self._prefetch is not None and (graph := self.graphs.get(iterator)) is not None:
            # It may take a whole block. Only the threads of this process wait meanwhile, which use the same graph.
            with suppress(WouldWaitError, StateError), self._store.transaction(write=False):
                self._prefetch.follow(graph)

    def look(self, iterator: int, file: str) -> bytes:
        """Return the text of one of its files except `next`, without writing. It never waits for other processes.

        If the store cannot be used, the text of `error` is the reason.
        """
        if file == "error":
            return self.notes.text(lambda: self._look(iterator, file))
        with self.notes.noting(iterator, file):
            return self.graphs.with_built(lambda: self._look(iterator, file))

    def look_nowait(self, iterator: int, file: str) -> bytes:
        """The same if it takes only microseconds, as `at_once`."""
        return self.at_once(iterator, lambda: self._look(iterator, file))

    def _look(self, iterator: int, file: str) -> bytes:
        with self._store.transaction(write=False) as connection:
            return self.text(connection, iterator, file)

    def at_once(self, iterator: int, act: Callable[[], bytes]) -> bytes:
        """Return what `act` returns if that takes only microseconds. Raises WouldWaitError otherwise and on errors.

        A thread then repeats it, with time to wait, and records the error.
        """
        graph = self.graphs.get(iterator)
        if self.notes.problem or graph is None or graph.refusal is not None:
            raise WouldWaitError
        if graph.spec.batch > BATCH_NOWAIT or graph.is_by_length:
            raise WouldWaitError
        try:
            return without_waiting(act)
        except NotFoundError:
            raise
        except (TouchfsError, UnbuiltError) as error:
            raise WouldWaitError from error

    def write(self, iterator: int, file: str, value: Any) -> None:
        """Write a value to one of its files. Raises UsageError for a wrong value; then nothing changes."""
        try:
            with self.notes.noting(iterator, file, changes=True):
                self.graphs.with_built(lambda: self.apply(iterator, file, value))
        except (StateError, NotFoundError):
            raise
        except TouchfsError as error:
            raise error if isinstance(error, UsageError) else UsageError(str(error)) from error

    def text(self, connection: Connection, iterator: int, file: str) -> bytes:
        """Make the text of one of its files, in a transaction. Raises UnbuiltError if the graph must be built first."""
        if file not in ITERATOR_FILES:
            raise NotFoundError(f"an iterator has no file {file!r}")
        return ITERATOR_FILES[file].read(self._at(connection, iterator))

    def apply(self, iterator: int, file: str, value: Any) -> None:
        """Write a value to one of its files, as `write`. Raises UnbuiltError if a graph must be built first."""

        def act(connection: Connection) -> None:
            at, write = self._at(connection, iterator), WRITABLE.get(file)
            at.row()  # raises for a removed iterator, whatever is written
            if write is None:
                raise UsageError(f"{file} cannot be written: {', '.join(WRITABLE)} can")
            connection.execute(
                "UPDATE iterator SET spec = ?, base = ?, steps = ?, error = '' WHERE id = ?",
                (*write(at, value), iterator),
            )

        self._store.run(act)
