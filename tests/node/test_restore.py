"""Every node resumes exactly, at every position; and none can be forgotten here."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

import pytest
from node import data
from node.graphs import DATA_GRAPHS, GRAPHS, Doubler, Make, Thing, leaf, numbers, several, shuffled, text
from node.test_cut_mixer import GRAPHS as MIXERS
from node.test_sampler import SAMPLERS, cuts

import touchfs.node
from touchfs.core.errors import UsageError
from touchfs.node import (
    IteratorNode,
    LazyBatcher,
    LazyFilter,
    LazyFlattener,
    LazyIndexedManifestIterator,
    LazyIndexedSharIterator,
    LazyInfiniteApproximateMultiplexer,
    LazyIteratorChain,
    LazyIteratorMultiplexer,
    LazyJsonlIterator,
    LazyManifestIterator,
    LazyMapper,
    LazyPrefetcher,
    LazyRepeater,
    LazySharIterator,
    LazyShuffler,
    LazySlicer,
)
from touchfs.node.core.iterator_node import kind_of
from touchfs.node.core.pair_node import PairNode
from touchfs.node.graph.state import collect_state_dict, graph_of, restore_state_dict
from touchfs.testing import check_restore


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_resumes_exactly(name: str) -> None:
    check_restore(GRAPHS[name])


# Each is like two others of them, or of GRAPHS.
LIKE_OTHERS = {"samples", "shards", "shar", "repeater of a shar", "chain of shars, shuffled"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.variant] if name in LIKE_OTHERS else []) for name in DATA_GRAPHS],
)
def test_every_graph_over_data_resumes_exactly(name: str) -> None:
    check_restore(DATA_GRAPHS[name])


def test_an_endless_graph_resumes_exactly() -> None:
    check_restore(lambda: LazyRepeater(shuffled(4)), items=15)
    check_restore(lambda: LazyShuffler(LazyRepeater(LazyFilter(shuffled(5), bool)), 3), items=15)


def test_in_a_new_process() -> None:
    """Positions in memory, in an index and in streamed files."""
    check_restore(_for_a_process, fresh_process=True)


def _for_a_process() -> IteratorNode:
    return LazyIteratorChain(
        LazyRepeater(LazyShuffler(LazyMapper(shuffled(2), text), 3), 2),
        LazyIndexedManifestIterator(data.speech(), shuffle=True, rank=0, world_size=3),
        LazySharIterator(data.shar_fields(True, "lang"), rank=0, world_size=3),
    )


# -- the contract's own example: only the import line and `transform` are ours


def transform(item: Any) -> Any:
    return Thing(("transformed", item))


from touchfs.node import (  # noqa: E402
    attach_graph_origin,
    get_graph_origin,
    maybe_attach_graph_origin,
    normalize_graph_token,
    resolve_iterator_source,
    supports_graph_restore,
)


# fmt: off
class MyTransform(IteratorNode):
    is_checkpointable = True

    def __init__(self, source):
        self.source = resolve_iterator_source(source)

    @property
    def is_indexed(self):
        return getattr(self.source, "is_indexed", False)

    @property
    def has_constant_time_access(self):
        return supports_graph_restore(self.source)

    def __getitem__(self, token):
        token = normalize_graph_token(token)
        item = self.source[token]
        item = transform(item)
        return attach_graph_origin(item, token)

    def __iter__(self):
        for item in self.source:
            yield maybe_attach_graph_origin(transform(item), get_graph_origin(item))

    def state_dict(self):
        state = {}
        if getattr(self.source, "is_checkpointable", False):
            state["source"] = self.source.state_dict()
        return state

    def load_state_dict(self, state):
        if "source" in state:
            self.source.load_state_dict(state["source"])
# fmt: on


@pytest.mark.parametrize(
    "make",
    [
        lambda: MyTransform(shuffled()),
        lambda: MyTransform(numbers()),
        lambda: MyTransform(MyTransform(LazyRepeater(shuffled(3), 2))),
        lambda: MyTransform(LazyIteratorMultiplexer(shuffled(3), MyTransform(leaf(4)))),
        lambda: LazyShuffler(MyTransform(LazyFlattener(LazyMapper(leaf(5), several))), 3),
    ],
)
def test_the_contracts_example_resumes_exactly(make: Make) -> None:
    check_restore(make)


# -- completeness


def test_no_node_is_forgotten() -> None:
    for module in pkgutil.iter_modules(touchfs.node.__path__):
        import_module(f"touchfs.node.{module.name}")
    every, left = set[type](), [IteratorNode]
    while left:
        kinds = left.pop().__subclasses__()
        every.update(kinds)
        left.extend(kinds)
    ours = {kind for kind in every if kind.__module__.startswith("touchfs.node.") and not inspect.isabstract(kind)}
    checked: set[type] = set()
    nodes = [make() for make in (GRAPHS | DATA_GRAPHS | MIXERS).values()]
    nodes += [make(cuts()) for make in SAMPLERS.values()]
    while nodes:
        node = nodes.pop()
        checked.add(type(node))
        nodes.extend(getattr(node, "sources", [node.source] if hasattr(node, "source") else []))
    assert ours - checked == {LazyInfiniteApproximateMultiplexer, LazyJsonlIterator}


# The contract's table. (checkpointable, indexed, constant time) over an indexed source and over a stream. Over what has
# no state, no node promises anything.
YES, NO = (True, True, True), (False, False, False)
ONLY_CHECKPOINTABLE = (True, False, False)
PROMISES = [
    (lambda source: LazyMapper(source, text), YES, ONLY_CHECKPOINTABLE),
    (lambda source: LazyFilter(source, bool), YES, ONLY_CHECKPOINTABLE),
    (lambda source: LazySlicer(source, 0, 2), YES, ONLY_CHECKPOINTABLE),
    (lambda source: LazyRepeater(source, 2), YES, ONLY_CHECKPOINTABLE),
    (lambda source: LazyBatcher(source, 2), YES, ONLY_CHECKPOINTABLE),
    (lambda source: LazyIteratorChain(leaf(), source), YES, ONLY_CHECKPOINTABLE),
    (lambda source: LazyIteratorMultiplexer(leaf(), source), YES, ONLY_CHECKPOINTABLE),
    (lambda source: MyTransform(source), YES, ONLY_CHECKPOINTABLE),
    (lambda source: LazyShuffler(source, 3), YES, NO),
    (lambda source: LazyFlattener(source), YES, NO),
    (lambda source: LazyPrefetcher(source), YES, NO),
    (lambda source: LazyInfiniteApproximateMultiplexer(source), NO, NO),
]


@pytest.mark.parametrize(("make", "over_indexed", "over_stream"), PROMISES)
def test_nodes_promise_what_they_keep(make: Any, over_indexed: tuple[bool, ...], over_stream: tuple[bool, ...]) -> None:
    collections = LazyIndexedManifestIterator([[1], [2, 3]])
    assert _promises(make(collections)) == over_indexed
    for source, promised in ((LazyManifestIterator(data.lines()), over_stream), ([[1], [2, 3]], NO)):
        node = make(source)
        over = LazyMapper(node, repr) if isinstance(node, MyTransform) else node
        assert _promises(over) == promised
        assert supports_graph_restore(over) is False
        assert next(iter(over)) is not None
        if promised == NO:
            with pytest.raises(UsageError, match="not checkpointable"):
                over.state_dict()
        else:
            assert over.state_dict()


# -- no silent replay


class Cursor(IteratorNode):
    """Over a plain list, in which it keeps its position itself."""

    is_checkpointable = True

    def __init__(self, source: list[Any]) -> None:
        self.source = source
        self.position = 0

    def __iter__(self) -> Any:
        while self.position < len(self.source):
            self.position += 1
            yield self.source[self.position - 1]
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class Both(IteratorNode):
    """Delegates to those of its sources that can be saved."""

    is_checkpointable = True

    def __init__(self, *sources: Any) -> None:
        self.sources = sources

    def __iter__(self) -> Any:
        for source in self.sources:
            yield from source

    def state_dict(self) -> dict[str, Any]:
        return {
            "sources": [
                source.state_dict() if getattr(source, "is_checkpointable", False) else None for source in self.sources
            ]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for source, inner in zip(self.sources, state["sources"], strict=True):
            if inner is not None:
                source.load_state_dict(inner)


STATELESS: dict[str, tuple[Callable[[], Any], str]] = {
    "a list": (lambda: [1, 2, 3], "a list has no state"),
    "a JSONL iterator": (lambda: LazyJsonlIterator(data.lines()), "a LazyJsonlIterator has no state"),
    "a shuffler of a stream": (
        lambda: LazyShuffler(LazyManifestIterator(data.lines())),
        "a LazyShuffler holds back items of a LazyManifestIterator, which no token rebuilds",
    ),
    "an infinite mix": (
        lambda: LazyInfiniteApproximateMultiplexer(leaf()),
        "a LazyInfiniteApproximateMultiplexer has no state",
    ),
}
ABOVE: dict[str, Callable[[Any], Any]] = {
    "itself": MyTransform,
    "two of them": lambda source: MyTransform(MyTransform(source)),
    "one that always delegates": Doubler,
    "one that delegates what it can": lambda source: Both(leaf(), source, Cursor([1])),
    "a mapper": lambda source: LazyMapper(MyTransform(source), text),
    "a chain": lambda source: LazyIteratorChain(leaf(), MyTransform(source)),
    "a mux below another": lambda source: MyTransform(LazyIteratorMultiplexer(leaf(), MyTransform(source))),
    "a shuffler below another": lambda source: MyTransform(LazyShuffler(MyTransform(source), 3)),
}


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("below", STATELESS)
def test_what_has_no_state_is_named_and_never_replayed(above: str, below: str) -> None:
    make, why = STATELESS[below]
    node = ABOVE[above](make())
    with pytest.raises(UsageError, match=rf"{kind_of(node)} is not checkpointable: {why}"):
        collect_state_dict(node)
    # As earlier versions saved it.
    state = {"touchfs_state": 1, "graph": graph_of(node), "state": {}}
    with pytest.raises(UsageError, match=why):
        restore_state_dict(node, state)
    if isinstance(node, PairNode):
        assert not node.is_checkpointable
    parent = LazyMapper(node, text)
    assert not parent.is_checkpointable
    for refused in (parent.state_dict, partial(parent.load_state_dict, LazyMapper(leaf(), text).state_dict())):
        with pytest.raises(UsageError, match=f"LazyMapper is not checkpointable: {why}"):
            refused()


@pytest.mark.parametrize("above", [lambda node: node, MyTransform, lambda node: LazyMapper(MyTransform(node), text)])
def test_a_cursor_of_ones_own_over_a_list_is_saved(above: Callable[[Any], Any]) -> None:
    make = lambda: LazyIteratorChain(above(Cursor([1, 2, 3])), leaf(2))  # noqa: E731
    assert make().is_checkpointable
    whole = list(make())
    for taken in range(6):
        node, restored = make(), make()
        first = list(islice(node, taken))
        restore_state_dict(restored, collect_state_dict(node))
        assert first + list(restored) == whole


def test_a_shuffled_chain_needs_no_states_of_its_sources() -> None:
    class Ordinals(list[int]):
        def token_at(self, ordinal: int, epoch: int) -> int:
            return ordinal

    assert LazyIteratorChain(leaf(2), Ordinals([4, 5]), shuffle_iters=True).is_checkpointable


LEAVES = [
    (leaf, YES),
    (lambda: LazyIndexedManifestIterator(data.lines()), YES),
    (lambda: LazyIndexedSharIterator(in_dir=data.shar_directory()), YES),
    (lambda: LazyManifestIterator(data.lines()), ONLY_CHECKPOINTABLE),
    (lambda: LazySharIterator(in_dir=data.shar_directory()), ONLY_CHECKPOINTABLE),
    (lambda: LazyJsonlIterator(data.lines()), NO),
]


@pytest.mark.parametrize(("make", "promised"), LEAVES)
def test_leaves_promise_what_they_keep(make: Make, promised: tuple[bool, ...]) -> None:
    node = make()
    assert _promises(node) == promised
    assert supports_graph_restore(node) == promised[2]
    item = next(iter(node))
    if promised == YES:
        assert node[get_graph_origin(item)] == item
    else:
        assert get_graph_origin(item) is None
        with pytest.raises(UsageError, match="cannot rebuild"):
            node[0]
    if promised == NO:
        with pytest.raises(UsageError, match="not checkpointable"):
            node.state_dict()


def test_the_tables_have_all_of_the_contracts_nodes() -> None:
    told = {type(make()) for make, _ in LEAVES} | {type(make(leaf())) for make, _, _ in PROMISES}
    assert told >= {
        LazyJsonlIterator,
        LazyManifestIterator,
        LazyIndexedManifestIterator,
        LazySharIterator,
        LazyIndexedSharIterator,
        LazyIteratorChain,
        LazyIteratorMultiplexer,
        LazyMapper,
        LazyFilter,
        LazyShuffler,
        LazyFlattener,
        LazyRepeater,
    }


def test_a_list_promises_nothing() -> None:
    assert not supports_graph_restore([1, 2])


def _promises(node: IteratorNode) -> tuple[bool, bool, bool]:
    return node.is_checkpointable, node.is_indexed, node.has_constant_time_access
