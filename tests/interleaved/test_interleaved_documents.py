"""The JSON of a sample: items by position, fields that are passed through, and which member each image is."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.interleaved.layout.document import SampleFields, parse_document
from touchfs.interleaved.layout.image_members import PlacedImage, default_member, place_images, resolve_member
from touchfs.limits import LIMITS

PLAIN = SampleFields()


def document(fields=PLAIN, **sample):
    return parse_document(json.dumps(sample).encode(), fields)


def test_positions_are_places_in_the_lists_and_gaps_stay():
    found = document(texts=["a", None, None, "d"], images=[None, "i.jpg", None, "j.jpg", None, 5])
    assert found.texts == [(0, "a"), (3, "d")]
    assert found.images == [(1, "i.jpg"), (3, "j.jpg"), (5, 5)]


@pytest.mark.parametrize("value", ["text", {"a": 1}, 5, None])
def test_what_is_no_list_has_no_items(value):
    found = document(texts=value, images=value)
    assert (found.texts, found.images, found.passthrough) == ([], [], {})


def test_escaped_characters_of_texts():
    assert parse_document(b'{"texts": ["\\ud800"]}', PLAIN).texts == [(0, "\ud800")]
    assert parse_document(b'{"texts": ["\\ud83d\\ude00"]}', PLAIN).texts == [(0, "\U0001f600")]


def test_texts_of_other_types_are_text_as_for_curator():
    assert document(texts=[5, True, "x"]).texts == [(0, "5"), (1, "True"), (2, "x")]


def test_all_other_fields_are_passed_through_but_for_reserved_columns():
    found = document(texts=[], url="u", nested={"a": [1]}, nothing=None, sample_id="i", position=3, binary_content="b")
    assert found.passthrough == {"url": "u", "nested": {"a": [1]}, "nothing": None}
    assert found.sample_id is None


def test_positions_of_lists_that_say_them():
    found = document(texts=["a", "b"], images=["i", None], touchfs_positions=[3, 3])
    assert (found.texts, found.images, found.passthrough) == ([(3, "a"), (3, "b")], [(3, "i")], {})


def test_fields_of_other_names():
    fields = SampleFields("paragraphs", "figures", "file", "id", ("widths",), ("langs",))
    found = document(
        fields, paragraphs=["p"], figures=["f"], file="x.tiff", id=7, widths=[1], langs=["en"], texts=["other"], k=1
    )
    assert (found.texts, found.images, found.image_member, found.sample_id) == ([(0, "p")], [(0, "f")], "x.tiff", "7")
    assert (found.per_image, found.per_text) == ({"widths": [1]}, {"langs": ["en"]})
    assert found.passthrough == {"texts": ["other"], "k": 1}


def test_fields_of_values_for_each_item_may_be_missing_but_are_lists():
    fields = SampleFields(per_image_fields=("widths",))
    assert document(fields, texts=[]).per_image == {}
    with pytest.raises(TypeError, match="'widths' has values for each item, so it must be a list, not dict"):
        document(fields, widths={})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a": ' + b"1" * 5000 + b"}", "a number too long"),
    ],
)
def test_bad_json(data, message):
    with pytest.raises(FormatError, match=message):
        parse_document(data, PLAIN)


def test_a_limit_of_size():
    with pytest.raises(FormatError, match="over 10 bytes"):
        parse_document(b'{"texts": ["long"]}', PLAIN, 10)
    assert parse_document(b'\xef\xbb\xbf{"texts": ["a"]}', PLAIN, LIMITS.json).texts == [(0, "a")]


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_bytes_are_a_sample_or_an_error_of_ours(data):
    with suppress(FormatError):
        parse_document(data, PLAIN)


def members_of(images, members, keys=("s",), fields=PLAIN, **sample):
    found = place_images(document(fields, images=images, **sample), keys, set(members))
    return [image.member for image in found]


def test_a_token_that_names_a_member_is_it():
    assert members_of(["a.jpg", None, "b.png"], ["a.jpg", "b.png", "s.jpg"]) == ["a.jpg", "b.png"]


def test_other_tokens_are_the_file_beside_the_json():
    assert members_of(["page_1_image_2", "page_2_image_3"], ["s.tiff", "t.tiff"]) == ["s.tiff", "s.tiff"]


def test_other_tokens_are_the_first_image_that_is_named():
    assert members_of(["page_1", "b.png", 7], ["b.png", "c.png", "s.jpg"]) == ["b.png", "b.png", "b.png"]


def test_the_field_of_the_member_comes_first():
    fields = SampleFields(image_member_field="file")
    assert members_of(["x", "b.png"], ["b.png", "f.tiff"], fields=fields, file="f.tiff") == ["f.tiff", "b.png"]
    assert members_of(["x", "b.png"], ["b.png"], fields=fields, file="gone.tiff") == ["b.png", "b.png"]


def test_extensions_have_an_order():
    assert members_of(["x"], ["s.gif", "s.png", "s.tiff"]) == ["s.png"]
    found = place_images(document(images=["x"]), ["s"], {"s.gif", "s.png"}, (".gif", ".png"))
    assert [image.member for image in found] == ["s.gif"]


@pytest.mark.parametrize("name", ["s.JPG", "s.TIFF", "s.Png"])
def test_extensions_in_upper_case_are_found(name):
    """The original does not find them."""
    assert members_of(["x"], [name]) == [name]


def test_a_sample_may_have_two_keys():
    assert members_of(["x"], ["d/s.png"], keys=("id", "d/s")) == ["d/s.png"]


def test_no_member():
    assert place_images(document(images=["x", None, "y"]), ["s"], {"t.png"}) == [
        PlacedImage(0, None, None, None),
        PlacedImage(2, None, None, None),
    ]
    assert default_member(document(images=[]), ["s"], {"s.xyz"}) is None
    assert resolve_member({"a": 1}, {"a"}, None) is None


def test_several_images_of_a_tiff_are_its_frames_by_member():
    found = place_images(document(images=["x", "b.tif", "y", "c.png", "b.tif"]), ["s"], {"b.tif", "c.png"})
    assert found == [
        PlacedImage(0, "b.tif", "image/tiff", 0),
        PlacedImage(1, "b.tif", "image/tiff", 1),
        PlacedImage(2, "b.tif", "image/tiff", 2),
        PlacedImage(3, "c.png", "image/png", None),
        PlacedImage(4, "b.tif", "image/tiff", 3),
    ]


def test_a_member_of_no_known_type():
    assert place_images(document(images=["a.xyz"]), ["s"], {"a.xyz"}) == [
        PlacedImage(0, "a.xyz", "application/octet-stream", None)
    ]
