"""Tokens and states survive JSON, and nothing else passes for one."""

from __future__ import annotations

import json

import lhotse.lazy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import from_json, normalize_graph_token, to_json
from touchfs.node import LazyIndexedManifestIterator, LazyRepeater
from touchfs.node.core.iterator_node import supports_graph_restore

TOKENS = st.recursive(st.integers() | st.text(), lambda parts: st.lists(parts).map(tuple), max_leaves=10)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=10,
)


@given(TOKENS)
def test_a_token_survives_json(token: object) -> None:
    assert normalize_graph_token(from_json(to_json(token))) == token
    assert normalize_graph_token(token) == token


@given(PLAIN)
def test_a_state_survives_json_and_has_one_spelling(state: object) -> None:
    text = to_json(state)
    assert from_json(text) == state
    assert to_json(from_json(text)) == text
    assert text.isascii()


def test_numpys_integers_become_plain_ones() -> None:
    token = normalize_graph_token([np.int64(3), (np.uint8(4), "five")])
    assert token == (3, (4, "five"))
    assert to_json(token) == '[3,[4,"five"]]'


@pytest.mark.parametrize("token", [True, 1.5, {}, {"a": 1}, [1, None], b"x", object()])
def test_other_things_are_no_tokens(token: object) -> None:
    with pytest.raises(TypeError, match="a token is an integer, a string or a tuple"):
        normalize_graph_token(token)


def test_hostile_nesting_is_refused() -> None:
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(TypeError, match="deep"):
        normalize_graph_token(deep)
    with pytest.raises(UsageError):
        to_json(deep)
    with pytest.raises(FormatError):
        from_json("[" * 1_000_000)


@pytest.mark.parametrize("state", [float("nan"), float("inf"), {1: 2}, {"a": {"b": {1, 2}}}, b"bytes", np.int64(1)])
def test_what_json_cannot_hold_is_refused(state: object) -> None:
    with pytest.raises(UsageError, match="values that JSON represents exactly"):
        to_json(state)


def test_the_message_says_where() -> None:
    with pytest.raises(UsageError, match=r"\['a'\]\[1\] is"):
        to_json({"a": [0, object()]})


@pytest.mark.parametrize("text", ["", "{", "[1,]", "NaN", '{"a":1,"a":2}', b"\xff\xfe", "9" * 5000, "[1]x"])
def test_damaged_text_is_a_format_error(text: str | bytes) -> None:
    with pytest.raises(FormatError):
        from_json(text)


@given(st.text() | st.binary())
def test_any_text_is_a_value_or_a_format_error(text: str | bytes) -> None:
    try:
        value = from_json(text)
    except FormatError:
        return
    assert json.loads(text) == value


def test_none_is_no_token_and_stays_none() -> None:
    """As Lhotse's function; inside a token, in a state or as a key it is refused."""
    assert normalize_graph_token(None) is None
    with pytest.raises(TypeError):
        normalize_graph_token([1, None])
    with pytest.raises(TypeError):
        LazyIndexedManifestIterator([1, 2])[None]


def test_what_can_be_restored_may_have_to_have_a_length() -> None:
    leaf = LazyIndexedManifestIterator([1, 2])
    endless = LazyRepeater(leaf)
    assert supports_graph_restore(leaf, require_length=True)
    assert supports_graph_restore(endless)
    assert not supports_graph_restore(endless, require_length=True)


class Claims:
    """It says that tokens rebuild its items, of data that need not be indexed, and does not say how."""

    has_constant_time_access = True


class Keeps(Claims):
    """It does say how."""

    def __getitem__(self, token: object) -> object:
        return token


@pytest.mark.parametrize(("source", "restores"), [(Claims(), False), (Keeps(), True), ([1], False), (None, False)])
@pytest.mark.parametrize("require_length", [False, True])
def test_what_can_be_restored_is_the_same_as_in_lhotse(source: object, restores: bool, require_length: bool) -> None:
    assert supports_graph_restore(source, require_length=require_length) is (restores and not require_length)
    assert lhotse.lazy.supports_graph_restore(source, require_length=require_length) is (
        restores and not require_length
    )
