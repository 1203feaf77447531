"""Conformance checks for nodes, to test your own nodes:

    def test_my_transform():
        check_restore(lambda: MyTransform(LazyIndexedManifestIterator(samples, shuffle=True)))

`make_node` builds the same graph at each call, as a restarted job would. `check_restore` saves at every position of two
epochs, also before the first item and after the end, restores each state into a new graph through JSON, and compares
the remaining items and the whole next epoch with an uninterrupted run. The time grows with the square of an epoch's
length, so use small data. A failure raises AssertionError with the position and the difference.

`check_shares` and `check_merge` are for nodes that make each item from one of their source: they check that workers,
and ranks that resume with other ranks, yield each item exactly once.
"""

from __future__ import annotations

import multiprocessing
import operator
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, product
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import Token, from_json, normalize_graph_token, to_json
from touchfs.node.core.iteration import ENDED
from touchfs.node.core.iterator_node import IteratorNode, kind_of, supports_graph_restore
from touchfs.node.core.origin import get_graph_origin
from touchfs.node.core.pair_node import PairNode
from touchfs.node.graph.merge import merge_states
from touchfs.node.graph.share import share_of
from touchfs.node.graph.state import collect_state_dict, restore_state_dict
from touchfs.posix import interpreter

MakeNode = Callable[[], IteratorNode]
# Called with a rank and the number of ranks.
MakeRank = Callable[[int, int], IteratorNode]
Equal = Callable[[Any, Any], Any]
# (epoch, items taken), or (epoch, None) after StopIteration.
Checkpoint = tuple[int, int | None]


def check_restore(
    make_node: MakeNode, items: int | None = None, *, equal: Equal = operator.eq, fresh_process: bool = False
) -> None:
    """Check that a node restores exactly from every position, and that its tokens rebuild its items.

    `items` limits the check of an endless node to its first items. `equal(a, b)` compares two items that `==` cannot
    compare. With `fresh_process`, states are also restored in a new interpreter; `make_node` and the items must then be
    picklable. Raises AssertionError if the node fails, UsageError if it is not checkpointable.
    """
    node = make_node()
    if not node.is_checkpointable:
        raise UsageError(f"{kind_of(node)} is not checkpointable: there is nothing to check")
    epochs = [list(islice(node, items)) for _ in range(4)]
    if any(len(epoch) == items for epoch in epochs):
        epochs = epochs[:1]
    states = _check_saving(make_node, epochs, equal)
    left = {checkpoint: _left(epochs, checkpoint) for checkpoint in states}
    for checkpoint, state in states.items():
        _check_states(make_node, states, checkpoint)
        _compare(
            _resume(make_node, state, _counts(left[checkpoint])),
            left[checkpoint],
            equal,
            f"restored {_name(checkpoint)}",
        )
    if supports_graph_restore(node):
        _check_tokens(make_node, items, equal)
    if epochs[0]:
        _check_two_iterators(make_node, epochs, states, equal)
    if fresh_process:
        setting, spawn = interpreter.user_setting(), multiprocessing.get_context("spawn")
        with interpreter.safe_path():
            pool = ProcessPoolExecutor(1, spawn, interpreter.restore, (setting,))
            pool.submit(os.getpid).result()  # the pool starts its process at the first task
        with pool:
            for checkpoint, state in states.items():
                parts = pool.submit(_resume, make_node, state, _counts(left[checkpoint])).result()
                _compare(parts, left[checkpoint], equal, f"restored {_name(checkpoint)} in a new process")


def check_shares(make_node: MakeNode, workers: int = 3, *, equal: Equal = operator.eq) -> None:
    """Check that the shares of 2 to `workers` workers of a graph together yield each item of an epoch exactly once.

    `make_node` builds the graph, and `equal(a, b)` compares two items, as for `check_restore`. Raises AssertionError if
    the items differ, UsageError if the graph cannot be split.
    """
    for count in range(2, workers + 1):
        items = [item for worker in range(count) for item in share_of(make_node(), worker, count)]
        _compare_unordered(items, list(make_node()), equal, f"the shares of {count} workers")


def check_merge(make_node: MakeRank, ranks: int = 3, *, equal: Equal = operator.eq) -> None:
    """Check that 1 to `ranks` ranks, resumed by other ranks, together yield each item of an epoch exactly once.

    `make_node(rank, world_size)` builds the graph of one rank, which must take its part with the tail "keep".
    `equal(a, b)` compares two items. Raises AssertionError if an item is missing or comes twice, UsageError if the
    states cannot be merged.
    """
    expected = list(make_node(0, 1))
    for before, after in product(range(1, ranks + 1), repeat=2):
        old = [make_node(rank, before) for rank in range(before)]
        # The first rank takes nothing, or all might have finished the epoch.
        items = [item for rank, node in enumerate(old) for item in islice(node, rank)]
        state = from_json(to_json(merge_states(list(map(collect_state_dict, old)))))
        for rank in range(after):
            node = make_node(rank, after)
            restore_state_dict(node, state)
            items += node
        _compare_unordered(items, expected, equal, f"{before} ranks, resumed by {after},")


def _check_saving(make_node: MakeNode, epochs: list[list[Any]], equal: Equal) -> dict[Checkpoint, str]:
    """Check that saving at every position changes nothing. Returns the states of two epochs, or of an endless start."""
    node = make_node()
    states: dict[Checkpoint, str] = {}
    seen: list[list[Any]] = []
    unbegun = _state(node)
    for epoch, expected in enumerate(epochs[:2]):
        iterator = iter(node)
        begun = _state(node)
        # A generator of another package begins at its first item: until then it is at the end of the pass before.
        if not epoch or begun != states[epoch - 1, None]:
            states[epoch, 0] = begun
        seen.append([])
        for item in islice(iterator, None if len(epochs) > 1 else len(expected)):
            seen[-1].append(item)
            states[epoch, len(seen[-1])] = _state(node)
        if len(epochs) > 1:
            states[epoch, None] = _state(node)
    _compare(seen, epochs[:2], equal, "saved at every position")
    _expect(unbegun == states[0, 0], "iter() changes the state of a node, although no item was taken")
    shapes = {checkpoint: _shape(from_json(state)) for checkpoint, state in states.items()}
    for checkpoint, shape in shapes.items():
        _expect(shape == shapes[0, 0], f"the state {_name(checkpoint)} has other fields than the first: {shape}")
    return states


def _check_states(make_node: MakeNode, states: dict[Checkpoint, str], checkpoint: Checkpoint) -> None:
    node = make_node()
    restore_state_dict(node, from_json(states[checkpoint]))
    _expect(
        _state(node) == states[checkpoint],
        f"restored {_name(checkpoint)}, the state differs before an item was taken",
    )
    epoch, taken = checkpoint
    if taken is not None and (epoch, taken + 1) in states:
        next(iter(node))
        after = _state(node)
        _expect(after == states[epoch, taken + 1], f"restored {_name(checkpoint)}, the state differs one item later")


def _check_tokens(make_node: MakeNode, items: int | None, equal: Equal) -> None:
    """Check that after two epochs every token, through JSON, rebuilds its item, here and in a new graph."""
    node = make_node()
    pairs = [pair for _ in range(2) for pair in islice(_with_tokens(node), items)]
    for graph in (node, make_node()):
        for token, item in pairs:
            in_json = from_json(to_json(token))
            _expect(normalize_graph_token(in_json) == token, f"token {token!r} changes in JSON")
            rebuilt = graph[in_json]
            _expect(equal(rebuilt, item), f"token {token!r} rebuilds {rebuilt!r}, and came with {item!r}")
            if get_graph_origin(item) is not None:
                _expect(get_graph_origin(rebuilt) == token, f"the item that token {token!r} rebuilds does not carry it")


def _check_two_iterators(
    make_node: MakeNode, epochs: list[list[Any]], states: dict[Checkpoint, str], equal: Equal
) -> None:
    """Check that two iterators of one node are independent, and that its state is that of the one advanced last."""
    node = make_node()
    iterators: list[Iterator[Any]] = [iter(node), iter(node)]
    seen: list[list[Any]] = [[], []]
    # The second makes two steps for each step of the first.
    for step in range(3 * len(epochs[0])):
        which = 0 if step % 3 == 0 else 1
        if len(seen[which]) < len(epochs[0]):
            seen[which].append(next(iterators[which]))
            _expect(
                _state(node) == states[0, len(seen[which])],
                f"of two live iterators, the one with {len(seen[which])} items taken was advanced last, "
                "and the state is that of the other: position must live in the iterator",
            )
    _compare(seen, [epochs[0], epochs[0]], equal, "in two iterators at once")
    if len(epochs) > 1:
        for iterator in iterators:
            _expect(not list(iterator), "one of two iterators at once has more than an epoch")
        _compare([list(node)], epochs[1:2], equal, "after two iterators at once, in the next epoch,")


def _left(epochs: list[list[Any]], checkpoint: Checkpoint) -> list[list[Any]]:
    """Return the expected items after a checkpoint: the rest of its epoch, and the next epoch."""
    epoch, taken = checkpoint
    return [[] if taken is None else epochs[epoch][taken:], *epochs[epoch + 1 : epoch + 2]]


def _counts(left: list[list[Any]]) -> list[int]:
    """Return how many items to request: one more than expected, but not from an endless node."""
    return [len(part) + (len(left) > 1) for part in left]


def _resume(make_node: MakeNode, state: str, counts: list[int]) -> list[list[Any]]:
    node = make_node()
    restore_state_dict(node, from_json(state))
    return [list(islice(node, count)) for count in counts]


def _with_tokens(node: IteratorNode) -> Iterable[tuple[Token, Any]]:
    pairs = ((token, make()) for token, make in node.pairs()) if isinstance(node, PairNode) else None
    for token, item in pairs or ((get_graph_origin(item), item) for item in node):
        if token is None:
            raise AssertionError(
                f"{kind_of(node)} yields {item!r} without a token, although it claims to rebuild items"
            )
        yield token, item


def _compare(got: list[list[Any]], expected: list[list[Any]], equal: Equal, when: str) -> None:
    for which, (part, correct) in enumerate(zip(got, expected, strict=True)):
        same = len(part) == len(correct) and all(map(equal, part, correct))
        _expect(same, f"{when} part {which} is {part!r:.500}, and must be {correct!r:.500}")


def _compare_unordered(got: list[Any], expected: list[Any], equal: Equal, whose: str) -> None:
    left = list(expected)
    for item in got:
        found = next((i for i, other in enumerate(left) if equal(item, other)), None)
        if found is None:
            raise AssertionError(f"{whose} yield {item!r:.200} too often")
        del left[found]
    _expect(not left, f"{whose} do not yield {left!r:.500}")


def _shape(state: Any) -> Any:
    """Return the field names of a state, without that of the end of a pass. A list counts only if it has objects."""
    if isinstance(state, dict):
        return {name: _shape(value) for name, value in state.items() if name != ENDED}
    if isinstance(state, list) and state and isinstance(state[0], dict):
        return list(map(_shape, state))
    return None


def _state(node: IteratorNode) -> str:
    return to_json(collect_state_dict(node))


def _name(checkpoint: Checkpoint) -> str:
    epoch, taken = checkpoint
    return f"after the end of epoch {epoch}" if taken is None else f"after {taken} items of epoch {epoch}"


def _expect(holds: Any, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
