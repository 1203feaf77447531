"""A graph whose next block was looked into makes the same steps as one that never looks ahead."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from iterator_data import SHARDS, make_shards

from touchfs.indexing import open_dataset
from touchfs.iterators import live_graph
from touchfs.iterators.live_graph import LiveGraph, Position, Step
from touchfs.iterators.spec import parse_spec
from touchfs.select.selector import Selector

BLOCK, SAMPLES = 4, sum(SHARDS.values())
SPECS = [
    {"shuffle": 7},
    {"shuffle": 7, "batch": 3},
    {"batch": 5},
    {"shuffle": 3, "repeat": 2, "rank": 1, "world_size": 2},
    {"shuffle": 3, "repeat": True},
    {"mux": [{"select": "samples"}, {"select": "segments", "shuffle": 1, "repeat": True}]},
]


@pytest.fixture(scope="module")
def selector(tmp_path_factory):
    place = tmp_path_factory.mktemp("live")
    make_shards(place / "shards")
    return Selector(open_dataset(os.fspath(place / "shards"), in_place=True), os.fspath(place / "survivors"))


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch):
    monkeypatch.setattr(live_graph, "_BLOCK", BLOCK)


class Steps:
    """A graph that is stepped as its callers do it: each step begins where the one before ended."""

    def __init__(self, graph: LiveGraph) -> None:
        self.graph = graph
        self.at = Position(graph.start, 0)

    def step(self) -> Step:
        self.graph.seek(*self.at)
        made = self.graph.step()
        self.at = made.after
        return made

    def coming(self, steps: int) -> list:
        self.graph.seek(*self.at)
        return self.graph.coming(steps)


def steps_of(spec: dict[str, object], selector: Selector) -> Steps:
    return Steps(LiveGraph(str(parse_spec(spec)), selector))


@settings(max_examples=30)
@given(st.sampled_from(SPECS), st.lists(st.integers(0, 3 * BLOCK), min_size=20, max_size=60))
def test_steps_do_not_depend_on_looks_ahead(selector, spec, looks):
    looking, plain = steps_of(spec, selector), steps_of(spec, selector)
    for look in looks:
        looking.coming(look)
        assert looking.step() == plain.step()


@settings(max_examples=30)
@given(st.sampled_from(SPECS), st.data())
def test_any_position_is_found_again_after_a_look_ahead(selector, spec, data):
    plain = steps_of(spec, selector)
    steps = [(plain.at, plain.step()) for _ in range(30)]
    again = steps_of(spec, selector)
    for number in data.draw(st.lists(st.integers(0, len(steps) - 1), max_size=12)):
        again.at, made = steps[number]
        again.coming(data.draw(st.integers(0, 3 * BLOCK)))
        assert again.step() == made


@pytest.mark.parametrize("batch", [1, 2])
def test_what_comes_is_known_beyond_the_block(selector, batch):
    graph = steps_of({"shuffle": 7, "batch": batch}, selector)
    known, made = [], True
    while made:
        known.append(len(graph.coming(BLOCK // batch)))
        made = bool(graph.step().tokens)
    full = (SAMPLES - BLOCK) // batch
    assert known[:full] == [BLOCK] * full
    assert known[-1] == 0
