"""The graph of an iterator in one process, ready to step.

Steps are grouped in blocks. A block begins at a state, its *base*, and a position in it is a count of steps. So the
store holds a base and a number; a step needs neither a new iteration nor a new state, and any process that has computed
the block can make it. No block crosses an epoch, whose end is the last step of its last block. All of this happens
under the store's lock of the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State, from_json, to_json
from touchfs.dataset.sample import Sample
from touchfs.iterators.spec import build_graph, refusal_of, select_samples, stored_spec
from touchfs.node.core.iteration import Iteration
from touchfs.node.graph.state import collect_state_dict, enclose, resume
from touchfs.select.selector import Selector

# Bytes of a state at most.
STATE_MAX = 4096
# A number in a state grows by this many digits at most.
_ROOM_FOR_DIGITS = 20
# Samples in a block. Restoring an iteration takes as long as some dozen steps. The store counts steps within blocks of
# this size, so changing it needs a new `store.VERSION`.
_BLOCK = 64


class Position(NamedTuple):
    """A position: a number of steps after a base, which is a state as JSON."""

    base: str
    steps: int


class Step(NamedTuple):
    """A step: the position after it, and the tokens of its samples; an empty list at the end of an epoch."""

    after: Position
    tokens: list[Any]


class _Block(NamedTuple):
    """The tokens of a block, and the iteration that gave them, which is behind them: at the base of the next block."""

    base: str
    tokens: list[Any]
    iteration: Iteration

    @property
    def is_last(self) -> bool:
        return self.iteration.ended


class LiveGraph:
    """The graph of a spec at a position. `samples` are those of its sources, `start` is its first state.

    Raises UsageError for a spec that is too large.
    """

    __slots__ = (
        *("_ahead", "_at", "_block", "_following", "_size"),
        *("is_by_length", "refusal", "root", "samples", "spec", "spec_text", "start"),
    )

    def __init__(self, spec_text: str, selector: Selector) -> None:
        self.spec_text = spec_text
        self.spec = stored_spec(spec_text)
        self.is_by_length = self.spec.is_by_length
        self.refusal = refusal_of(spec_text)
        self.samples = select_samples(self.spec, selector)
        self.root = build_graph(self.spec, self.samples)
        self.start = to_json(collect_state_dict(self.root))
        growth = _ROOM_FOR_DIGITS * (2 * max(len(self.spec.mux), 1) + 1)
        if len(self.start) + growth > STATE_MAX:
            raise UsageError(f"spec: its state would take more than {STATE_MAX} bytes: mux fewer sources")
        self._size = self.spec.batch * max(_BLOCK // self.spec.batch, 1)
        self._block: _Block | None = None
        self._at = 0
        # The block after this one, if somebody looked into it.
        self._ahead: _Block | None = None
        # Once all steps of a block were made: the base of the next one, and the iteration that is there.
        self._following: tuple[str, Iteration] | None = None

    def seek(self, base: str, steps: int) -> None:
        """Go to a position. Raises FormatError if it is damaged, UsageError if this graph has none such."""
        if type(steps) is not int or not 0 <= steps * self.spec.batch <= self._size:  # SQLite stores values of any type
            raise FormatError(f"a block has no {steps!r:.40} steps")
        if self._block is None or base != self._block.base:
            self._enter(base)
        self._at = steps

    def _enter(self, base: str) -> None:
        """Go into the block of a base. After an error this graph is at no position."""
        ahead, following = self._ahead, self._following
        self._block = self._ahead = self._following = None
        if ahead is not None and ahead.base == base:
            self._block = ahead
        elif following is not None and following[0] == base and not following[1].ended:
            self._block = self._take(base, following[1])
        else:
            self._block = self._take(base, resume(self.root, from_json(base)))

    def _take(self, base: str, iteration: Iteration) -> _Block:
        return _Block(base, iteration.take(self._size), iteration)

    def _base_after(self, block: _Block) -> str:
        return to_json(enclose(self.root, block.iteration.state()))

    def peek(self) -> list[Any]:
        """Return the tokens of the next step's samples, all of one epoch; an empty list at the end of an epoch."""
        first = self._at * self.spec.batch
        return self._block.tokens[first : first + self.spec.batch] if self._block is not None else []

    def coming(self, steps: int) -> list[Any]:
        """Return the tokens of the samples of the next steps, as far as this block and the next one of the epoch go.

        Raises the errors of the graph's sources.
        """
        block, first, wanted = self._block, self._at * self.spec.batch, steps * self.spec.batch
        tokens = [] if block is None else block.tokens[first : first + wanted]
        if block is not None and self._ahead is None and len(tokens) < wanted and not block.is_last:
            base = self._base_after(block)
            # The iteration of this block stays where it is, also if this fails.
            self._ahead = self._take(base, resume(self.root, from_json(base)))
        return tokens if self._ahead is None else tokens + self._ahead.tokens[: wanted - len(tokens)]

    def made(self, tokens: Sequence[Any]) -> Iterator[Sample]:
        """Yield the samples of tokens of steps: those of a batch by length are several."""
        for item in map(self.root.make, tokens):
            yield from item if isinstance(item, list) else (item,)

    def step(self) -> Step:
        """Make a step: take the samples of `peek`, and move to the position after them."""
        block, tokens = self._block, self.peek()
        if block is None:
            raise RuntimeError("a step before seek")
        self._at += 1
        is_last = not tokens if block.is_last else self._at * self.spec.batch == self._size
        if not is_last:
            return Step(Position(block.base, self._at), tokens)
        following = self._base_after(block) if self._ahead is None else self._ahead.base
        self._block, self._following = None, (following, block.iteration)
        return Step(Position(following, 0), tokens)

    def state(self) -> State:
        """Return the state at the current position, with its envelope."""
        if self._block is None:
            raise RuntimeError("no state before seek")
        base: State = from_json(self._block.base)
        taken = min(self._at * self.spec.batch, len(self._block.tokens))
        if not taken:
            return base
        iteration = resume(self.root, base)
        iteration.take(taken)
        return enclose(self.root, iteration.state())

    def epoch(self) -> int:
        return self.root.epoch_of(self.state()["state"])

    def progress(self) -> tuple[int, int | None]:
        """Return (position, length) within the epoch. The length of an endless epoch is None."""
        return self.root.progress(self.state()["state"])
