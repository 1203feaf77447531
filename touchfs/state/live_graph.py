"""The graph of an iterator as one process has it, at some state, ready to go on from there.

The iteration of the last step is kept together with the state that it left behind. When that is still the stored one,
the next step goes on with it, which saves restoring it. After anything else it is restored.
"""

from __future__ import annotations

import json
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
from touchfs.token import from_json, to_json

# What a checkpoint may grow to.
STATE_MAX = 4096
# A state's numbers grow by that many digits at most.
_ROOM_FOR_DIGITS = 20
# A step that takes more is for a thread.
BATCH_NOWAIT = 64
# That many workers stepping in turn go on without restoring.
_STEPS_BEHIND = 4
# As `to_json`, without the check that all is plain, which would take as long as the rest of a step.
_spell = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


class LiveGraph:
    """`iteration` goes on where `state` says; None is nowhere."""

    __slots__ = ("_before", "_behind", "iteration", "root", "spec", "spec_text", "start", "state")

    def __init__(self, spec_text: str, selector: Selector) -> None:
        self.spec_text = spec_text
        self.spec = parse_spec(from_json(spec_text))
        self.root = build_graph(self.spec, selector)
        self.start = to_json(collect_state_dict(self.root))
        self._before, _, self._behind = to_json(enclose(self.root, {})).partition("{}")
        self.state: str | None = None
        self.iteration: Iteration
        growth = _ROOM_FOR_DIGITS * (2 * max(len(self.spec.mux), 1) + 1)
        if len(self.start) + growth > STATE_MAX:
            raise UsageError(f"spec: its state would take more than {STATE_MAX} bytes: mux fewer sources")

    def seek(self, state: str) -> None:
        if self.state != state and not self._catches_up(state):
            self.state = None
            self.iteration = resume(self.root, from_json(state))
            self.state = state

    def _catches_up(self, state: str) -> bool:
        """Another process may have taken the steps in between: to take them too is ten times faster than restoring."""
        for _ in range(_STEPS_BEHIND if self.spec.batch <= BATCH_NOWAIT else 0):
            if self.state is None:
                break
            self.take(self.spec.batch)
            if self.state == state:
                return True
        return False

    def take(self, count: int) -> tuple[list[Any], str]:
        """The tokens of samples of one epoch, and the state after them; none at its end, and the start of the next."""
        before, self.state = self.state, None
        taken = self.iteration.take(count)
        if before is not None and 0 < len(taken) < count:
            # The iteration has seen the end, which is told by the next step.
            self.iteration = resume(self.root, from_json(before))
            taken = self.iteration.take(len(taken))
        after = f"{self._before}{_spell(self.iteration.state())}{self._behind}"
        self.state = after if taken else None
        return taken, after

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
