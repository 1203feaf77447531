"""The graph of an iterator as one process has it, ready to step.

Steps are taken in blocks: where one begins is a state, its *base*, and within it only the steps are counted. So the
store has a base and a number; a step makes neither an iteration nor a state, and any process that has the block can
take it. No block goes beyond an epoch, whose end is the last step of its last block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from touchfs.errors import UsageError
from touchfs.node.base import Iteration, PairNode
from touchfs.node.manifest import LazyIndexedManifestIterator
from touchfs.node.multiplexer import LazyIteratorMultiplexer
from touchfs.node.repeater import LazyRepeater
from touchfs.node.state import collect_state_dict, enclose, resume
from touchfs.state.selected import Samples, Selector
from touchfs.state.spec import build_graph, parse_spec
from touchfs.token import State, from_json, to_json

# What a checkpoint may grow to.
STATE_MAX = 4096
# A state's numbers grow by that many digits at most.
_ROOM_FOR_DIGITS = 20
# A step that takes more is for a thread.
BATCH_NOWAIT = 64
# Samples. To restore an iteration takes as long as some dozen steps.
_BLOCK = 64


class LiveGraph:
    __slots__ = ("_at", "_base", "_following", "_iteration", "_size", "_tokens", "root", "spec", "spec_text", "start")

    def __init__(self, spec_text: str, selector: Selector) -> None:
        self.spec_text = spec_text
        self.spec = parse_spec(from_json(spec_text))
        self.root = build_graph(self.spec, selector)
        self.start = to_json(collect_state_dict(self.root))
        growth = _ROOM_FOR_DIGITS * (2 * max(len(self.spec.mux), 1) + 1)
        if len(self.start) + growth > STATE_MAX:
            raise UsageError(f"spec: its state would take more than {STATE_MAX} bytes: mux fewer sources")
        self._size = self.spec.batch * max(_BLOCK // self.spec.batch, 1)
        self._base: str | None = None
        # Where the block after this one begins, once all of this one was taken, and whether it is of the same epoch.
        self._following: str | None = None
        self._iteration: Iteration
        self._tokens: list[Any] = []
        self._at = 0

    def seek(self, base: str, steps: int) -> None:
        """Go to so many steps behind a state."""
        if base != self._base:
            self._base = None
            if base != self._following or self._iteration.ended:
                self._iteration = resume(self.root, from_json(base))
            self._tokens = self._iteration.take(self._size)
            self._base, self._following = base, None
        self._at = steps

    def peek(self) -> list[Any]:
        """The tokens of the samples of the next step, which are of one epoch; none at its end."""
        first = self._at * self.spec.batch
        return self._tokens[first : first + self.spec.batch]

    def step(self) -> tuple[list[Any], str, int]:
        """What `peek` tells, and what to `seek` for the step after it."""
        if self._base is None:
            raise RuntimeError("a step before seek")
        tokens = self.peek()
        self._at += 1
        is_last = not tokens if self._iteration.ended else self._at * self.spec.batch == self._size
        if not is_last:
            return tokens, self._base, self._at
        self._base, self._following = None, to_json(enclose(self.root, self._iteration.state()))
        return tokens, self._following, 0

    def state(self) -> State:
        """Where it is, the envelope and all."""
        if self._base is None:
            raise RuntimeError("no state before seek")
        base: State = from_json(self._base)
        taken = min(self._at * self.spec.batch, len(self._tokens))
        if not taken:
            return base
        iteration = resume(self.root, base)
        iteration.take(taken)
        return enclose(self.root, iteration.state())

    def paths(self, tokens: Sequence[Any]) -> list[bytes]:
        """Of the first file of each sample, from the root of the tree; where there is none, of what says why."""
        if len(tokens) == 1:
            return [self.root.make(tokens[0]).first_path()]
        paths: list[bytes] = [b""] * len(tokens)
        for samples, places, positions in _by_leaf(self.root, range(len(tokens)), tokens):
            for place, path in zip(places, samples.paths(positions), strict=True):
                paths[place] = path
        return paths


def _by_leaf(
    node: PairNode, places: Sequence[int], tokens: Sequence[Any]
) -> Iterator[tuple[Samples, Sequence[int], Sequence[int]]]:
    """For each leaf its samples, and at which places there are tokens of which of them."""
    if isinstance(node, LazyRepeater):
        yield from _by_leaf(node.source, places, [token for _, token in tokens])
    elif isinstance(node, LazyIteratorMultiplexer):
        for number, source in enumerate(node.sources):
            own = [place for place, (index, _) in enumerate(tokens) if index == number]
            yield from _by_leaf(source, [places[place] for place in own], [tokens[place][1] for place in own])
    elif isinstance(node, LazyIndexedManifestIterator):
        samples: Samples = node.samples  # type: ignore[assignment]
        yield samples, places, tokens
    else:
        raise TypeError(f"no graph of a spec has a {type(node).__name__}")
