import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.store.json_prefix import outcome_of

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_all_that_a_value_begins_with_is_a_prefix(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert outcome_of(text) == outcome_of(f" {text}\n") == "value"
    for end in range(len(text)):
        outcome = outcome_of(text[:end])
        if text[:end].strip() == "":
            assert outcome == "blank"
        elif isinstance(value, dict | list | str):
            assert outcome == "prefix"
        else:
            assert outcome in ("prefix", "value")


@given(st.text(alphabet='{}[],:"\\ \n0123.-eEutrfalsn/é\x01'))
def test_a_value_is_what_json_takes(text):
    try:
        json.loads(text)
        sound = True
    except ValueError:
        sound = False
    try:
        assert (outcome_of(text) == "value") == sound
    except FormatError as error:
        assert not sound
        assert 0 <= (error.offset or 0) <= len(text)


@pytest.mark.parametrize(
    "text", ["x", "{x", "[1,]", "{,", "{}}", "{} {}", "01", "1 2", "tru ", '{"a" 1', "nulll", "[}", "]"]
)
def test_what_no_value_begins_with_is_refused(text):
    with pytest.raises(FormatError, match="not JSON"):
        outcome_of(text)


def test_nesting_has_an_end():
    assert outcome_of("[" * 200 + "]" * 200) == "value"
    with pytest.raises(FormatError):
        outcome_of("[" * 201)
