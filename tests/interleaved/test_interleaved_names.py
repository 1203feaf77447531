"""Names of members: ids are quoted so that readers of WebDataset keep a sample together, and types have extensions."""

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.interleaved.layout.media_types import IMAGE_EXTENSIONS, content_type_of, extension_of
from touchfs.interleaved.layout.quoting import quote_id


def test_ids_are_quoted_as_by_curator_but_for_dots():
    assert quote_id("a/b c") == quote("a/b c", safe="") == "a%2Fb%20c"
    assert quote_id("a.b/c") == "a%2Eb%2Fc"
    assert quote_id("..") == "%2E%2E"
    assert quote_id("中文-_~") == "%E4%B8%AD%E6%96%87-_~"


@given(st.text(), st.text())
def test_two_ids_have_two_names_that_are_one_key(first, second):
    names = quote_id(first), quote_id(second)
    assert (names[0] == names[1]) == (first == second)
    assert not {".", "/", "\0", " "}.intersection(names[0])
    assert unquote(names[0]) == first


def test_an_id_that_is_not_unicode():
    assert quote_id("\udcff") == "%ED%B3%BF"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jpg", "image/jpeg"),
        ("a.b.JPEG", "image/jpeg"),
        ("d.png/a.PNG", "image/png"),
        ("a.tif", "image/tiff"),
        ("a.TIFF", "image/tiff"),
        ("a.webp", "image/webp"),
        ("a.gif", "image/gif"),
        ("a.bmp", "image/bmp"),
        ("a.avif", "image/avif"),
        ("a.json", "application/json"),
        ("a.xyz", None),
        ("d.png/a", None),
        ("jpg", None),
        (".jpg", None),
        ("", None),
    ],
)
def test_types_of_names(name, expected):
    assert content_type_of(name) == expected


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("image/jpeg", "jpg"),
        ("IMAGE/JPEG", "jpg"),
        ("image/jpg", "jpg"),
        ("image/png; x=y", "png"),
        ("image/tiff", "tiff"),
        ("image/webp", "webp"),
        ("image/gif", "gif"),
        ("image/bmp", "bmp"),
        ("image/avif", "avif"),
        ("image/svg+xml", "svg"),
        ("application/octet-stream", "bin"),
        ("", "bin"),
        (None, "bin"),
    ],
)
def test_extensions_of_types(content_type, expected):
    assert extension_of(content_type) == expected


def test_readers_look_for_all_images_that_writers_name():
    assert {content_type_of(f"a{extension}") for extension in IMAGE_EXTENSIONS} == {
        f"image/{name}" for name in ("jpeg", "png", "tiff", "webp", "bmp", "gif")
    }
