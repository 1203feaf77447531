"""Graphs of every kind of node below every other, and random ones: each resumes exactly or refuses to be saved.

`make test` tries a sixteenth of the pairs, in which each kind is below and above others, and some random graphs; `make
test-all` tries an eighth. `make soak` tries all, and 6,400 random ones.
"""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from node.random_graphs import COMPOSITES, GRAPHS_OF_PAIRS, Recipe, graphs_of_pair, random_graph

import touchfs.node
from touchfs.core.errors import UsageError
from touchfs.node import IteratorNode, PairNode, collect_state_dict, supports_graph_restore
from touchfs.node.core.iterator_node import children_of
from touchfs.node.public_names import NODE_MODULES
from touchfs.testing import check_restore


def check(recipe: Recipe, items: int) -> None:
    """Over so many items of an endless graph, and of one that is much repeated."""
    node = recipe()
    assert node.is_checkpointable == recipe.saves or recipe.kind == "foreign"
    assert supports_graph_restore(node) == recipe.restores
    if recipe.saves:
        check_restore(recipe, items)
        return
    list(islice(node, items))
    with pytest.raises(UsageError, match="not checkpointable"):
        collect_state_dict(node)


def test_no_node_is_left_out() -> None:
    found, left = set[type](), [recipe() for pair in GRAPHS_OF_PAIRS for recipe in graphs_of_pair(*pair)]
    while left:
        node = left.pop()
        found.add(type(node))
        left.extend(children_of(node))
    every = {kind for name in touchfs.node.__all__ if isinstance(kind := getattr(touchfs.node, name), type)}
    kinds = {kind for kind in every if issubclass(kind, IteratorNode)} - {IteratorNode, PairNode}
    assert kinds <= found
    assert {kind.__name__: kind.__module__ for kind in kinds} == NODE_MODULES


PARTS = 16
ITEMS = [6, *[10] * (PARTS - 1)]
# One, two, and all of them.
OTHERS = [pytest.mark.variant, *([pytest.mark.soak] * (PARTS - 2))]
PART = pytest.mark.parametrize("part", [0, *(pytest.param(i, marks=mark) for i, mark in enumerate(OTHERS, 1))])


@PART
@pytest.mark.parametrize("kind", COMPOSITES)
def test_every_kind_of_node_below_this_one(kind: str, part: int) -> None:
    recipes = [recipe for pair in GRAPHS_OF_PAIRS if pair[0] == kind for recipe in graphs_of_pair(*pair)]
    for recipe in recipes[(COMPOSITES.index(kind) + part) % PARTS :: PARTS]:
        _check(recipe, ITEMS[part])


@pytest.mark.parametrize(
    ("part", "graphs"),
    [
        (0, 100),
        pytest.param(1, 100, marks=pytest.mark.variant),
        *(pytest.param(part, 6400, marks=pytest.mark.soak) for part in range(PARTS)),
    ],
)
def test_random_graphs(part: int, graphs: int) -> None:
    for number in range(part, graphs, PARTS):
        _check(random_graph(Random(number)), ITEMS[part])


def _check(recipe: Recipe, items: int) -> None:
    try:
        check(recipe, items)
    except BaseException as error:
        error.add_note(f"the graph is {recipe}")
        raise
