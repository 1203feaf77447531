"""An item's token names the right item, and is written into nobody's data."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict, dataclass
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from node.graphs import Thing, numbers

from touchfs.node import (
    LazyIndexedManifestIterator,
    LazyIteratorChain,
    LazyRepeater,
    attach_graph_origin,
    get_graph_origin,
    maybe_attach_graph_origin,
    normalize_graph_token,
)


class Room:
    __slots__ = ("_graph_origin",)


@dataclass(frozen=True, slots=True)
class Slotted(Room):
    value: int


@dataclass(frozen=True)
class Frozen:
    value: int


PLAIN = [5, 1.5, "text", b"bytes", (1, 2), [1, 2], {"a": 1}]


@pytest.mark.parametrize("item", PLAIN)
def test_plain_values_carry_a_token_each(item: Any) -> None:
    first, second = attach_graph_origin(item, 1), attach_graph_origin(item, (2, 3))
    assert first == second == item
    assert isinstance(first, type(item))
    assert repr(first) == repr(item)
    assert (get_graph_origin(first), get_graph_origin(second), get_graph_origin(item)) == (1, (2, 3), None)
    assert get_graph_origin(attach_graph_origin(first, 7)) == 7
    assert get_graph_origin(first) == 1


@pytest.mark.parametrize("item", PLAIN)
def test_plain_values_are_saved_as_plain_values(item: Any) -> None:
    carrying = attach_graph_origin(item, 1)
    loaded = pickle.loads(pickle.dumps(carrying))
    assert loaded == item
    assert type(loaded) is type(item)
    if not isinstance(item, bytes):
        assert json.dumps(carrying) == json.dumps(item)


@pytest.mark.parametrize("item", [Thing(1), Slotted(1), Frozen(1), SimpleNamespace(value=1)])
def test_objects_carry_a_token_that_is_not_saved(item: Any) -> None:
    assert attach_graph_origin(item, (1, 2)) is item
    assert item._graph_origin == (1, 2)
    assert get_graph_origin(item) == (1, 2)
    assert get_graph_origin(pickle.loads(pickle.dumps(item))) is None


def test_dataclasses_do_not_list_it() -> None:
    assert asdict(attach_graph_origin(Frozen(1), 5)) == asdict(attach_graph_origin(Slotted(1), 5)) == {"value": 1}


def test_copies_keep_it() -> None:
    thing = attach_graph_origin(Thing([1]), (1, 2))
    assert get_graph_origin(copy.copy(thing)) == get_graph_origin(copy.deepcopy(thing)) == (1, 2)


@pytest.mark.parametrize("item", [None, True, np.zeros(3), object(), int])
def test_what_cannot_carry_a_token_is_an_error(item: Any) -> None:
    with pytest.raises(TypeError, match="cannot carry a token"):
        attach_graph_origin(item, 1)
    assert maybe_attach_graph_origin(item, None) is item
    assert get_graph_origin(item) is None


def test_an_object_in_memory_keeps_the_token_it_came_with() -> None:
    things = [Thing(0), Thing(1)]
    repeated = list(LazyRepeater(LazyIndexedManifestIterator(things), 2))
    elsewhere = list(LazyIteratorChain(LazyIndexedManifestIterator(things)))
    assert [get_graph_origin(thing) for thing in repeated] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [get_graph_origin(thing) for thing in elsewhere] == [(0, 0), (0, 1)]
    assert repeated == things * 2


def test_a_dict_in_memory_is_not_written_to() -> None:
    rows = [{"a": 1}]
    (row,) = LazyIndexedManifestIterator(rows)
    row["b"] = 2
    assert rows == [{"a": 1}]
    assert get_graph_origin(row) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: LazyIndexedManifestIterator([Thing(i) for i in range(5)], shuffle=True),
        lambda: LazyIteratorChain(LazyIndexedManifestIterator(range(5)), LazyRepeater(numbers(2))),
    ],
)
def test_what_an_item_carries_is_a_token_that_its_graph_takes(make: Any) -> None:
    for item in islice(make(), 8):
        token = item._graph_origin
        rebuilt = make()[token]
        assert rebuilt == item
        assert rebuilt._graph_origin == token == get_graph_origin(item)
        assert make()[json.loads(json.dumps(token))] == item
        assert normalize_graph_token(token) == token
        assert type(get_graph_origin(item)) in (int, tuple)
        assert get_graph_origin(attach_graph_origin(Thing(7), token)) == token


@pytest.mark.parametrize("token", [7, "a", (0, (1, "b")), [0, [1, "b"]], np.int64(7)])
def test_tokens_of_every_kind_are_carried(token: Any) -> None:
    item = attach_graph_origin(Thing(1), token)
    assert item._graph_origin == get_graph_origin(item) == normalize_graph_token(token)
    assert {item._graph_origin: 1}[normalize_graph_token(token)] == 1  # type: ignore[attr-defined]
    assert repr(item._graph_origin) == repr(normalize_graph_token(token))  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(item))._graph_origin is None
    with pytest.raises(TypeError, match="a token is"):
        attach_graph_origin(Thing(1), 1.5)  # type: ignore[arg-type]
