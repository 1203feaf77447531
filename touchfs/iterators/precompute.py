"""Precomputing: while no request waits, a process computes the answer to the request that is likely to come next.

A program that opens a file for reading sends the read one round trip later. Meanwhile the text is computed, in a
transaction that the read commits. After a step the next step is computed, as far as that needs no transaction. Together
these hide more than half of the time that a step takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from touchfs.errors import TouchfsError, WouldWaitError
from touchfs.iterators.graphs import UnbuiltError
from touchfs.iterators.live_graph import LiveGraph
from touchfs.store.iterator_store import Connection
from touchfs.store.opens import Opens


class Steps(Protocol):
    """Makes the texts of iterators."""

    def quick_graph(self, iterator: int) -> LiveGraph | None:
        """The graph of an iterator, if it is built and its steps take microseconds."""
        ...

    def text(self, connection: Connection, iterator: int, file: str) -> bytes:
        """Make the text of a file in a transaction."""
        ...

    def output(self, graph: LiveGraph, tokens: Sequence[Any]) -> bytes:
        """The text of a step."""
        ...


class Precompute:
    """The answer that one process has precomputed. Only one thread uses it, while no other uses the iterators.

    `is_on` is the switch, off at first. With several processes another one may get the read, and would block on the
    open transaction. So only a process that gets all requests turns it on.
    """

    def __init__(self, steps: Steps, opens: Opens) -> None:
        self.is_on = False
        self._steps = steps
        self._opens = opens
        self._expected: tuple[int, int, str] | None = None  # an open, its iterator and its file
        self._stepped = 0
        self._text: tuple[int, bytes] | None = None

    def expect(self, open_id: int, iterator: int, file: str) -> None:
        """Note that a file whose text is in the store was just opened for reading."""
        self._expected = open_id, iterator, file

    @property
    def has_work(self) -> bool:
        """True if `run` would compute something."""
        return self.is_on and (self._expected is not None or (self._stepped > 0 and self._text is None))

    @property
    def has_text(self) -> bool:
        """True if a text is computed, whose transaction locks the store until it is read or rolled back."""
        return self._text is not None

    def run(self) -> None:
        """Compute what the next request is likely to read."""
        expected, self._expected = self._expected, None
        if expected is not None:
            _, iterator, file = expected
            self.compute_text(*expected)
            self._stepped = iterator if file == "next" else 0
        elif self._stepped and self._text is None:
            self.compute_step(self._stepped)
            self._stepped = 0
            self._opens.delete_released()

    def compute_text(self, open_id: int, iterator: int, file: str) -> None:
        """Compute the text of an open in an uncommitted transaction of the store, unless that would have to wait."""
        if self._steps.quick_graph(iterator) is None:
            return
        try:
            text = self._opens.attempt(open_id, lambda connection: self._steps.text(connection, iterator, file))
        except (WouldWaitError, TouchfsError, UnbuiltError):
            return
        self._text = open_id, text

    def take_text(self, open_id: int) -> bytes | None:
        """Commit and return the text of an open. None if it is not computed, or if the store was used since."""
        if self._text is None or self._text[0] != open_id or not self._opens.commit(open_id):
            return None
        text, self._text = self._text[1], None
        return text

    def rollback(self) -> None:
        """Roll back a text that was not read, because its transaction locks the store for others."""
        if self._text is not None:
            self._text = None
            self._opens.store.rollback()

    def compute_step(self, iterator: int) -> None:
        """Compute the step after the latest one of this process, without the store."""
        graph = self._steps.quick_graph(iterator)
        if graph is not None and graph.is_ready:
            with suppress(TouchfsError):
                step = graph.step()
                graph.precomputed = step, self._steps.output(graph, step.tokens)


def take_step(connection: Connection, iterator: int, graph: LiveGraph | None) -> bytes | None:
    """Make the computed step of a graph, and return its text. None if there is none or the iterator is elsewhere."""
    if graph is None or graph.precomputed is None:
        return None
    (step, text), graph.precomputed = graph.precomputed, None
    found = connection.execute(
        "UPDATE iterator SET base = ?, steps = ? WHERE id = ? AND base = ? AND steps = ? AND spec = ?",
        (*step.after, iterator, *step.before, graph.spec_text),
    )
    return text if found.rowcount else None
