"""A graph whose next block was looked into makes the same steps as one that never looks ahead."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from iterator_data import SHARDS, make_shards

from touchfs.indexing import open_dataset
from touchfs.iterators import live_graph
from touchfs.iterators.live_graph import LiveGraph
from touchfs.iterators.spec import parse_spec
from touchfs.select.selection import Selector

BLOCK, SAMPLES = 4, sum(SHARDS.values())
SPECS = [
    {"shuffle": 7},
    {"shuffle": 7, "batch": 3},
    {"batch": 5},
    {"shuffle": 3, "repeat": 2, "rank": 1, "world_size": 2},
    {"shuffle": 3, "repeat": True},
    {"mux": [{"source": "samples"}, {"source": "segments", "shuffle": 1, "repeat": True}]},
]


@pytest.fixture(scope="module")
def selector(tmp_path_factory):
    place = tmp_path_factory.mktemp("live")
    make_shards(place / "shards")
    return Selector(open_dataset(os.fspath(place / "shards"), in_place=True), os.fspath(place / "survivors"))


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch):
    monkeypatch.setattr(live_graph, "_BLOCK", BLOCK)


def graph_of(spec: dict[str, object], selector: Selector) -> LiveGraph:
    graph = LiveGraph(str(parse_spec(spec)), selector)
    graph.seek(graph.start, 0)
    return graph


@settings(max_examples=30)
@given(st.sampled_from(SPECS), st.lists(st.integers(0, 3 * BLOCK), min_size=20, max_size=60))
def test_steps_do_not_depend_on_looks_ahead(selector, spec, looks):
    looking, plain = graph_of(spec, selector), graph_of(spec, selector)
    for look in looks:
        looking.coming(look)
        assert looking.step() == plain.step()


@settings(max_examples=30)
@given(st.sampled_from(SPECS), st.data())
def test_any_position_is_found_again_after_a_look_ahead(selector, spec, data):
    plain = graph_of(spec, selector)
    steps = [plain.step() for _ in range(30)]
    graph = graph_of(spec, selector)
    for number in data.draw(st.lists(st.integers(0, len(steps) - 1), max_size=12)):
        graph.seek(*steps[number].before)
        graph.coming(data.draw(st.integers(0, 3 * BLOCK)))
        assert graph.step() == steps[number]


@pytest.mark.parametrize("batch", [1, 2])
def test_what_comes_is_known_beyond_the_block(selector, batch):
    graph = graph_of({"shuffle": 7, "batch": batch}, selector)
    known, made = [], True
    while made:
        known.append(len(graph.coming(BLOCK // batch)))
        made = bool(graph.step().tokens)
    full = (SAMPLES - BLOCK) // batch
    assert known[:full] == [BLOCK] * full
    assert known[-1] == 0
