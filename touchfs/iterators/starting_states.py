"""States built from a position: one from which a given sample comes next, or at which an epoch begins."""

from __future__ import annotations

from typing import Any

from touchfs.errors import FormatError, UsageError
from touchfs.iterators.live_graph import LiveGraph
from touchfs.iterators.spec import check_name
from touchfs.select.selection import AnySamples, position_at, source_of
from touchfs.token import State, from_json, to_json

_ITEM = {"fingerprint": str, "source": str, "shard": str, "ordinal": int, "segment": int}


def state_at_item(graph: LiveGraph, item: dict[str, Any], fingerprint: str) -> State:
    """Return the state from which the sample of an item token comes next, in the graph's current epoch.

    Raises FormatError for a damaged token, UsageError for one that does not fit the graph or the dataset.
    """
    for name, kind in _ITEM.items():
        if type(item.get(name)) is not kind:
            raise FormatError(f"an item token has a {name}, of {kind.__name__}: it is damaged")
    check_name(item["shard"], "shard")
    if item["fingerprint"] != fingerprint:
        raise UsageError("the token is of another dataset")
    if graph.spec.mux:
        raise UsageError("an iterator over several sources cannot be positioned at an item: only a state can")
    (samples,) = graph.samples
    envelope = graph.state()
    return {**envelope, "state": graph.root.relocate(envelope["state"], _position(samples, item))}


def _position(samples: AnySamples, item: dict[str, Any]) -> int:
    if (source := source_of(samples.view)) != item["source"]:
        raise UsageError(f"the token is of {item['source']!r:.80}, the iterator goes over {source}")
    shard = samples.dataset.by_name.get(item["shard"].encode(errors="surrogateescape"), -1)
    expected = item["shard"], item["ordinal"], item["segment"]
    position = position_at(samples, (shard, item["ordinal"], item["segment"]))
    found = samples[position] if position < len(samples) else None
    if found is None or (found.shard, found.ordinal, found.number) != expected:
        raise UsageError("the item of the token is not in what the iterator selects")
    return position


def reset_state(graph: LiveGraph, value: Any) -> str | None:
    """Return the state, as JSON, for a value written to `reset`: 1 is the very start (None), {"epoch": 3} an epoch's.

    Raises UsageError for any other value.
    """
    if value is True or (type(value) is int and value == 1):
        return None
    epoch = value.get("epoch") if isinstance(value, dict) and len(value) == 1 else None
    if type(epoch) is not int or not 0 <= epoch < 1 << 31:
        raise UsageError('reset takes 1, or {"epoch": N}')
    if graph.spec.repeat:
        raise UsageError("reset: an iterator that repeats has no epochs to begin with: write 1, or a state to token")
    envelope = from_json(graph.start)
    return to_json({**envelope, "state": graph.root.begin(epoch).state()})
