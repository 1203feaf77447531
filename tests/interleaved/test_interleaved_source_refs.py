"""Locators are the JSON that NeMo Curator writes; whatever else is in the column is an error of ours."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.interleaved.layout.source_ref import SourceRef, format_source_ref, parse_source_ref

TEXTS = st.none() | st.text()
NUMBERS = st.none() | st.integers(0, 2**63 - 1)


def test_the_text_is_that_of_curator():
    ref = SourceRef("/d/é.tar", "a.0.jpg", 512, 20)
    assert (
        format_source_ref(ref) == '{"path": "/d/\\u00e9.tar", "member": "a.0.jpg", "byte_offset": 512, "byte_size": 20}'
    )
    assert format_source_ref(SourceRef()) == '{"path": null, "member": null, "byte_offset": null, "byte_size": null}'


def test_a_frame_has_a_key_only_where_there_is_one():
    assert json.loads(format_source_ref(SourceRef("p", frame_index=0)))["frame_index"] == 0
    assert "frame_index" not in json.loads(format_source_ref(SourceRef("p")))


@pytest.mark.parametrize("text", [None, "", "{}", '{"path": null, "member": null}', '{"legacy": 1, "other": [2]}'])
def test_no_locator(text):
    assert parse_source_ref(text) == SourceRef()


def test_keys_that_are_not_known_are_ignored():
    assert parse_source_ref('{"path": "p", "content_path": "x", "checksum": "MD5:0"}') == SourceRef(
        "p", checksum="MD5:0"
    )


@pytest.mark.parametrize("text", ["[]", "1", '"text"', "null", "true"])
def test_what_is_no_object_is_a_type_error(text):
    with pytest.raises(TypeError, match="source_ref must decode to a JSON object"):
        parse_source_ref(text)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 60_000,
        '{"path": "\\ud800"}',
        '{"byte_size": -1}',
        '{"byte_size": 1e400}',
        '{"byte_size": NaN}',
        '{"byte_size": "many"}',
        '{"byte_offset": [1]}',
        '{"frame_index": 99999999999999999999}',
        json.dumps({"path": "x" * 100_000}),
    ],
)
def test_what_means_no_bytes_is_an_error(text):
    with pytest.raises(FormatError, match="source_ref"):
        parse_source_ref(text)


def test_numbers_as_text_are_numbers_as_for_curator():
    assert parse_source_ref('{"path": 7, "byte_offset": "5", "byte_size": 6.0}') == SourceRef("7", None, 5, 6)


@given(st.builds(SourceRef, TEXTS, TEXTS, NUMBERS, NUMBERS, NUMBERS, TEXTS))
def test_round_trip(ref):
    assert parse_source_ref(format_source_ref(ref)) == ref


@given(st.text() | st.recursive(st.none() | st.booleans() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_a_locator_or_an_error_of_ours(text):
    with suppress(FormatError):
        assert isinstance(parse_source_ref(text), SourceRef)
