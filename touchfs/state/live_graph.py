"""The graph of an iterator as one process has it, at some state, ready to go on from there.

The iteration of the last step is kept together with the state that it left behind. When that is still the stored one,
the next step goes on with it, which saves restoring it. After anything else it is restored.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

from touchfs.errors import UsageError
from touchfs.node.base import Pair
from touchfs.node.state import collect_state_dict, restore_state_dict
from touchfs.shown_sample import ShownSample
from touchfs.state.selected import Selector
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
    """`pairs` goes on where `state` says; None is nowhere."""

    __slots__ = ("pairs", "root", "spec", "spec_text", "start", "state")

    def __init__(self, spec_text: str, selector: Selector) -> None:
        self.spec_text = spec_text
        self.spec = parse_spec(from_json(spec_text))
        self.root = build_graph(self.spec, selector)
        self.start = to_json(collect_state_dict(self.root))
        self.state: str | None = None
        self.pairs: Any = None
        growth = _ROOM_FOR_DIGITS * (2 * max(len(self.spec.mux), 1) + 1)
        if len(self.start) + growth > STATE_MAX:
            raise UsageError(f"spec: its state would take more than {STATE_MAX} bytes: mux fewer sources")

    def seek(self, state: str) -> None:
        if self.state != state and not self._catches_up(state):
            self.state = None
            restore_state_dict(self.root, from_json(state))
            self.pairs = self.root.pairs()
            self.state = state

    def _catches_up(self, state: str) -> bool:
        """Another process may have taken the steps in between: to take them too is ten times faster than restoring."""
        for _ in range(_STEPS_BEHIND if self.spec.batch <= BATCH_NOWAIT else 0):
            if self.state is None:
                break
            self._advance(self.spec.batch)
            if self.state == state:
                return True
        return False

    def take(self, count: int) -> tuple[list[ShownSample], str]:
        """Samples of one epoch, and the state after them; none at its end, and the start of the next."""
        taken, after = self._advance(count)
        return [make() for _, make in taken], after

    def _advance(self, count: int) -> tuple[list[Pair], str]:
        before, self.state = self.state, None
        taken = list(islice(self.pairs, count))
        if before is not None and 0 < len(taken) < count:
            # The pairs have seen the end, which is told by the next step.
            restore_state_dict(self.root, from_json(before))
            self.pairs = self.root.pairs()
            taken = list(islice(self.pairs, len(taken)))
        after = _spell(collect_state_dict(self.root))
        self.state = after if taken else None
        return taken, after
