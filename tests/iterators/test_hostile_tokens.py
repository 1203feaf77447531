"""Tokens and specs that somebody changed: each is refused and nothing moves, or it is as good as any other."""

import copy
import json
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import iterator_data
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from touchfs import node
from touchfs.core.errors import UsageError
from touchfs.indexing import open_dataset
from touchfs.iterators.iterators import Iterators
from touchfs.store.store import StateStore

SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sharded": {"shuffle": 7, "rank": 1, "world_size": 3, "partition": "block", "tail": "pad"},
    "repeated": {"shuffle": 7, "repeat": 3, "where": 'info.lang == "en"'},
    "endless": {"select": "segments", "repeat": True},
    "muxed": {"shuffle": 7, "mux": [{"weight": 2}, {"select": "segments/two", "repeat": 2}], "repeat": 2},
}
# What a field may be that should be something else, or is far from it.
VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 2, 23, (1 << 62) + 1, 1 << 63, 10**400),
    *(0.0, 1.5, "", "LazyRepeater", "a\nb", "\ud800", "é" * 1000),
    *([], [1, 1, 1], [10**9] * 3, [[]], [{}], {}, {"node": {}}, {"position": 1}),
    [{"kind": "stride", "tail": "keep", "cursors": [9] * 3}] * 40,
]
GONE = object()


@pytest.fixture(scope="module")
def iterators(tmp_path_factory) -> Iterator[Iterators]:
    place = tmp_path_factory.mktemp("hostile")
    iterator_data.make_shards(place / "shards")
    with closing(StateStore(os.fspath(place / "state" / "store.sqlite"))) as store:
        yield Iterators(store, open_dataset(os.fspath(place / "shards"), in_place=True))


def made(iterators: Iterators, spec: dict[str, Any], steps: int = 4, name: str = "train") -> int:
    if name in iterators.names():
        iterators.remove(name)
    iterator = iterators.create(name)
    iterators.write(iterator, "spec", {"output": "json", **spec})
    for _ in range(steps):
        iterators.read(iterator, "next")
    return iterator


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield here
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*here, name))


def changed(token: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The token with another value at a place, or without that place."""
    if not place:
        return None if value is GONE else value
    told = copy.deepcopy(token)
    inside = told
    for name in place[:-1]:
        inside = inside[name]
    if value is GONE:
        del inside[place[-1]]
    else:
        inside[place[-1]] = value
    return told


def facts_of(iterators: Iterators, iterator: int) -> list[str]:
    return [iterators.read(iterator, file) for file in ("spec", "token", "peek")]


def check(iterators: Iterators, iterator: int, value: Any, file: str = "token") -> bool:
    """Whether it is taken. Then the iterator is at a position that is told alike, stepped from and restored."""
    before = facts_of(iterators, iterator)
    try:
        iterators.write(iterator, file, value)
    except UsageError as error:
        assert facts_of(iterators, iterator) == before
        assert iterators.read(iterator, "error").removeprefix(f"{file}: ") == f"{error}\n".removeprefix(f"{file}: ")
        assert "\n" not in str(error)
        return False
    facts = facts_of(iterators, iterator)
    assert iterators.read(iterator, "error") == ""
    position, _, epoch = (iterators.read(iterator, name).strip() for name in ("position", "len", "epoch"))
    assert position.isdigit() and epoch.isdigit()
    assert iterators.read(iterator, "next") == facts[-1]
    after = iterators.read(iterator, "token")
    iterators.write(iterator, "token", json.loads(facts[1]))
    assert facts_of(iterators, iterator) == facts
    assert iterators.read(iterator, "next") == facts[-1]
    assert iterators.read(iterator, "token") == after
    return True


def taken(iterators: Iterators, iterator: int, right: Any, share: int, file: str = "token") -> set[str]:
    """The names of the fields that can be something else, alone. Each field is given a share of the odd values."""
    assert check(iterators, iterator, right, file)
    found = set()
    for number, place in enumerate(places(right)):
        names = [name for name in place if isinstance(name, str)]
        for value in [0, 1, 2, *[*VALUES, GONE][number % share :: share]]:
            told = changed(right, place, value)
            if check(iterators, iterator, told, file) and told != right:
                found.update(names[-1:])
    return found


# A ninth of all pairs of a field and a value, or all.
SHARES = pytest.mark.parametrize("share", [9, pytest.param(1, marks=pytest.mark.soak)])
# Those that say where an iteration is, of all that a state says; "kind" can be left out, as Python's states do.
MOVING = {"position", "epoch", "repeat", "drawn", "drained", "stages", "partition", "kind"}


def state_of(iterators: Iterators, iterator: int) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(iterators.read(iterator, "token"))
    return state


@SHARES
@pytest.mark.parametrize("spec", SPECS)
def test_each_field_of_a_state_with_each_odd_value(iterators, spec, share):
    iterator = made(iterators, SPECS[spec])
    assert {"position", "epoch"} <= taken(iterators, iterator, state_of(iterators, iterator), share) <= MOVING


@SHARES
@pytest.mark.parametrize("spec", ["plain", "sharded", "repeated"])
def test_each_field_of_an_item_token_with_each_odd_value(iterators, spec, share):
    iterator = made(iterators, SPECS[spec], 0)
    token = json.loads(iterators.read(iterator, "peek"))["token"]
    assert taken(iterators, iterator, token, share) <= {"ordinal"}


@SHARES
def test_each_field_of_a_merged_state_with_each_odd_value(iterators, share):
    old = [made(iterators, {"shuffle": 7, "rank": rank, "world_size": 3}, rank, f"rank{rank}") for rank in range(3)]
    merged = node.merge_states([state_of(iterators, iterator) for iterator in old])
    iterator = made(iterators, {"shuffle": 7, "rank": 1, "world_size": 2})
    assert taken(iterators, iterator, merged, share) <= {*MOVING, "cursors", "tail"}


@SHARES
@pytest.mark.parametrize("spec", SPECS)
def test_each_field_of_a_spec_with_each_odd_value(iterators, spec, share):
    iterator = made(iterators, SPECS[spec])
    taken(iterators, iterator, json.loads(iterators.read(iterator, "spec")), share, "spec")


@pytest.mark.parametrize(
    "source", ["samples/\ud800", "samples/one/\ud800", "samples/\udcff", "merged/\ud800", "samples/\0"]
)
def test_sources_that_are_no_text(iterators, source):
    iterator = made(iterators, {})
    assert not check(iterators, iterator, {"select": source}, "spec")
    assert not check(iterators, iterator, {"where": f'key == "{source}'}, "spec")


@pytest.mark.parametrize("examples", [8, pytest.param(30, marks=pytest.mark.variant)])
@pytest.mark.parametrize("spec", SPECS)
def test_several_fields_changed_at_once(iterators, spec, examples):
    iterator = made(iterators, SPECS[spec])
    token = state_of(iterators, iterator)

    @settings(max_examples=examples, deadline=None)
    @given(st.data())
    def check_one(data: st.DataObject) -> None:
        told = token
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.sampled_from(list(places(told))[1:]))
            told = changed(told, place, data.draw(st.integers(0, 30) | st.integers() | st.sampled_from(VALUES)))
        check(iterators, iterator, told)

    check_one()


def test_a_state_of_any_other_spec_is_refused(iterators):
    tokens = {name: state_of(iterators, made(iterators, spec, name=name)) for name, spec in SPECS.items()}
    for name in SPECS:
        iterator = iterators.find(name)
        assert iterator is not None
        assert [other for other, token in tokens.items() if check(iterators, iterator, token)] == [name]
