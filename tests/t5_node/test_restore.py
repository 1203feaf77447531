"""Every node resumes exactly, at every position; and none can be forgotten here."""

from __future__ import annotations

import inspect
import pkgutil
from functools import partial
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from t5_node import data
from t5_node.graphs import DATA_GRAPHS, GRAPHS, Make, Recipe, Thing, leaf, numbers, recipes, several, shuffled, text
from t5_node.test_cut_mixer import GRAPHS as MIXERS
from t5_node.test_sampler import SAMPLERS, cuts

import touchfs.node
from touchfs.errors import UsageError
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
from touchfs.testing import check_restore


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_resumes_exactly(name: str) -> None:
    check_restore(GRAPHS[name])


@pytest.mark.parametrize("name", DATA_GRAPHS)
def test_every_graph_over_data_resumes_exactly(name: str) -> None:
    check_restore(DATA_GRAPHS[name])


@settings(max_examples=60, deadline=None)
@given(recipes())
def test_random_graphs_resume_exactly(make: Recipe) -> None:
    check_restore(make, items=15)


def test_an_endless_graph_resumes_exactly() -> None:
    check_restore(lambda: LazyRepeater(shuffled(4)), items=15)
    check_restore(lambda: LazyShuffler(LazyRepeater(LazyFilter(shuffled(5), bool)), 3), items=15)


def test_in_a_new_process() -> None:
    check_restore(partial(_for_a_process, 5), fresh_process=True)


def test_data_in_a_new_process() -> None:
    check_restore(partial(LazyIndexedManifestIterator, data.speech(), shuffle=True), fresh_process=True)
    check_restore(partial(LazySharIterator, in_dir=data.shar_directory(True)), fresh_process=True)


def _for_a_process(count: int) -> IteratorNode:
    return LazyRepeater(LazyShuffler(LazyMapper(shuffled(count), text), 3), 2)


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


# The contract's table. (checkpointable, indexed, constant time) over an indexed source and over a plain list.
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
    (lambda source: LazyShuffler(source, 3), YES, NO),
    (lambda source: LazyFlattener(source), YES, NO),
    (lambda source: LazyPrefetcher(source), YES, NO),
    (lambda source: LazyInfiniteApproximateMultiplexer(source), NO, NO),
]


@pytest.mark.parametrize(("make", "over_indexed", "over_list"), PROMISES)
def test_nodes_promise_what_they_keep(make: Any, over_indexed: tuple[bool, ...], over_list: tuple[bool, ...]) -> None:
    collections = LazyIndexedManifestIterator([[1], [2, 3]])
    assert _promises(make(collections)) == over_indexed
    over = make([[1], [2, 3]])
    assert _promises(over) == over_list
    assert supports_graph_restore(over) is False
    with pytest.raises(UsageError, match="not checkpointable"):
        over.state_dict()
    assert next(iter(over)) is not None


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
