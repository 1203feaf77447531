"""Filter expressions over items."""

import logging

import pyarrow as pa
import pytest

from touchfs.core.errors import NotFoundError, UsageError
from touchfs.format.image_size import ImageSize
from touchfs.interleaved import InterleavedBatch, InterleavedFilter
from touchfs.select.expression import parse_where
from touchfs.select.ids.names import open_file
from touchfs.select.rows import matching_rows

ROWS = [
    # sample_id, position, modality, text, lang, score
    ("a", -1, "metadata", None, "en", None),
    ("a", 0, "text", "one", None, None),
    ("a", 1, "image", None, None, 0.5),
    ("a", 2, "image", None, None, 0.9),
    ("b", -1, "metadata", None, "de", 0.7),
    ("b", 0, "image", None, None, 0.1),
    ("c", -1, "metadata", None, "en", None),
    ("d", 0, "text", "two", None, None),
]
SIZES = {2: ImageSize(200, 100), 3: ImageSize(100, 100), 5: ImageSize(300, 100)}


def table():
    names = ["sample_id", "position", "modality", "text_content", "lang", "score"]
    return pa.table(dict(zip(names, map(list, zip(*ROWS, strict=True)), strict=True)))


def kept(expression, rows=None, sizes=SIZES):
    asked = []

    def sizes_of(numbers):
        asked.append(list(numbers))
        return [sizes.get(number) for number in numbers]

    found = matching_rows(table() if rows is None else rows, parse_where(expression), sizes_of)
    assert len(asked) == any(name in expression for name in ("width", "height", "aspect_ratio"))
    return [number for number, stays in enumerate(found) if stays]


def test_ids_of_a_file_decide_about_samples(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    (tmp_path / "ids.txt").write_text("a\nd\n")
    chosen = InterleavedFilter(f"sample_id in @{tmp_path}/ids.txt")
    assert len(chosen(InterleavedBatch()).table) == 0
    where = parse_where(chosen.where, open_file)
    found = matching_rows(table(), where, lambda numbers: [])
    assert [number for number, stays in enumerate(found) if stays] == [0, 1, 2, 3, 7]
    with pytest.raises(NotFoundError, match=r"none.txt: no such file"):
        InterleavedFilter(f"sample_id in @{tmp_path}/none.txt")


def test_an_expression_about_images_leaves_texts_alone():
    assert kept("aspect_ratio < 2") == [0, 1, 3, 7]
    assert kept("aspect_ratio <= 2") == [0, 1, 2, 3, 7]
    assert kept("width >= 300 or height < 50") == [0, 1, 4, 5, 7]


def test_columns_decide_about_all_content():
    assert kept('modality == "image"') == [0, 2, 3, 4, 5]
    assert kept('text_content contains "o"') == [0, 1, 7]
    assert kept("position == 0") == [0, 1, 4, 5, 7]


def test_a_null_is_looked_up_in_the_metadata_of_the_sample():
    assert kept('lang == "en"') == [0, 1, 2, 3]
    assert kept("score > 0.3") == [0, 2, 3]
    assert kept("not lang exists") == [7]


def test_metadata_without_content_goes():
    assert 6 not in kept("position >= 0")
    assert kept("aspect_ratio > 9", table().slice(4, 3), {}) == []


def test_reserved_columns_are_not_looked_up_in_the_metadata():
    rows = table().set_column(3, "text_content", pa.array(["m", None, None, None, None, None, None, None]))
    assert kept('text_content == "m"', rows) == []


def test_fields_inside_structs_and_json_texts():
    info = pa.array([{"lang": "en"}, None, None, None, {"lang": "de"}, None, None, None])
    text = pa.array(['{"lang": ["en"]}', None, None, None, "not JSON", None, None, None])
    rows = table().append_column("info", info).append_column("text", text)
    assert kept('info.lang == "en"', rows) == [0, 1, 2, 3]
    assert kept('text.lang contains "en"', rows) == [0, 1, 2, 3]


def test_an_image_without_a_size_fails_and_is_logged(caplog):
    with caplog.at_level(logging.WARNING):
        assert kept("width > 0", sizes={2: ImageSize(1, 1)}) == [0, 1, 2, 7]
    assert "2 of 3 images have no size" in caplog.text


def test_a_field_that_no_row_has_is_logged(caplog):
    with caplog.at_level(logging.WARNING):
        assert kept("aspectratio < 2") == []
    assert "no row has the field aspectratio" in caplog.text


def test_columns_come_before_headers():
    rows = table().append_column("width", pa.array([None, None, 7, None, None, None, None, None], pa.int64()))
    assert kept("width == 7", rows) == [0, 1, 2, 7]
    assert kept("width == 100", rows) == [0, 1, 3, 7]


@pytest.mark.parametrize("expression", ["", "width <", "aspect_ratio < 2 and"])
def test_an_expression_that_is_none(expression):
    with pytest.raises(UsageError, match="column"):
        parse_where(expression)


def test_no_rows():
    assert kept("aspect_ratio < 2", table().slice(0, 0)) == []
