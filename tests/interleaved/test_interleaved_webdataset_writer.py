"""Tars of interleaved samples: names, JSON, columns that are passed through, and what NeMo Curator's writer loses."""

import datetime
import json
import logging
from decimal import Decimal

import pyarrow as pa
import pytest
from interleaved_tars import make_image, make_tiff, make_wds_tar, mint_sample
from written_items import PNG, image, item_batch, metadata, read_document, read_tar, text

from touchfs.core.errors import ArgumentValueError, FormatError
from touchfs.interleaved.layout.source_ref import SourceRef, format_source_ref
from touchfs.interleaved.write import InterleavedWebdatasetWriter


@pytest.fixture
def writer(tmp_path):
    return InterleavedWebdatasetWriter(tmp_path / "out", on_materialize_error="warn")


def document(writer, rows, types=None):
    return read_document(writer.write(item_batch(rows, types)))


def test_a_sample_is_its_images_and_then_its_json(writer):
    rows = [metadata(url="http://x"), text(0, "Ünï 中文"), image(1, PNG + b"1"), text(3, "end"), image(4, PNG + b"4")]
    members = read_tar(writer.write(item_batch(rows)))
    assert list(members) == ["s.1.png", "s.4.png", "s.json"]
    assert members["s.4.png"] == PNG + b"4"
    assert "Ünï 中文".encode() in members["s.json"]
    assert json.loads(members["s.json"]) == {
        "sample_id": "s",
        "texts": ["Ünï 中文", None, None, "end", None],
        "images": [None, "s.1.png", None, None, "s.4.png"],
        "url": "http://x",
    }


def test_a_sample_of_texts_alone(writer):
    assert document(writer, [text(0, "a"), text(1, "b")]) == {
        "sample_id": "s",
        "texts": ["a", "b"],
        "images": [None, None],
    }


def test_a_sample_of_metadata_alone(writer):
    assert document(writer, [metadata(url="u")]) == {"sample_id": "s", "texts": [], "images": [], "url": "u"}


@pytest.mark.parametrize(
    ("sample_id", "key"),
    [("a.b/c.3", "a%2Eb%2Fc%2E3"), ("../x", "%2E%2E%2Fx"), ("ü +~-_", "%C3%BC%20%2B~-_"), ("100%", "100%25")],
)
def test_ids_are_quoted_with_their_dots(writer, sample_id, key):
    path = writer.write(item_batch([text(0, "t", sample_id), image(1, PNG, sample_id)]))
    assert list(read_tar(path)) == [f"{key}.1.png", f"{key}.json"]
    assert read_document(path, key)["sample_id"] == sample_id


def test_an_id_that_a_tar_cannot_store(writer):
    with pytest.raises(FormatError, match=r"/out/[0-9a-f]{12}\.tar: a tar cannot store a sample with this key"):
        writer.write(item_batch([text(0, "t", "")]))


def test_rows_of_samples_may_be_mixed_and_in_any_order(writer):
    rows = [text(2, "c", "x"), text(0, "y", "y"), metadata("x", url="u"), text(0, "a", "x"), image(1, PNG, "x")]
    path = writer.write(item_batch(rows))
    assert list(read_tar(path)) == ["x.1.png", "x.json", "y.json"]
    assert read_document(path, "x")["texts"] == ["a", None, "c"]


def test_one_id_in_several_batches_stays_several_samples(writer):
    with writer.writing(["a.tar"]) as shard:
        for number in range(3):
            shard.append(item_batch([text(0, f"t{number}"), image(1, PNG + b"%d" % number)]))
    assert shard.rows == 6
    assert list(read_tar(shard.path)) == ["s.1.png", "s.json", "s+2.1.png", "s+2.json", "s+3.1.png", "s+3.json"]
    assert read_document(shard.path, "s+3") == {
        "sample_id": "s",
        "texts": ["t2", None],
        "images": [None, "s+3.1.png"],
    }


def test_two_items_of_one_position_are_both_kept(writer):
    """Curator's writer keeps the last one."""
    rows = [text(0, "a"), text(2, "b"), text(2, "c"), image(2, PNG + b"1"), image(2, PNG + b"2"), image(2, b"\xff\xd8")]
    path = writer.write(item_batch(rows))
    members = read_tar(path)
    assert members["s.2.png"] == PNG + b"1"
    assert members["s.2.2.png"] == PNG + b"2"
    assert read_document(path) == {
        "sample_id": "s",
        "texts": ["a", "b", "c", None, None, None],
        "images": [None, None, None, "s.2.png", "s.2.2.png", "s.2.3.png"],
        "touchfs_positions": [0, 2, 2, 2, 2, 2],
    }


def test_a_text_and_an_image_may_share_a_position(writer):
    assert document(writer, [text(1, "a"), image(1, PNG)]) == {
        "sample_id": "s",
        "texts": [None, "a"],
        "images": [None, "s.1.png"],
    }


def test_a_huge_position_makes_no_huge_list(writer):
    assert document(writer, [text(0, "a"), image(2**31 - 1, PNG)]) == {
        "sample_id": "s",
        "texts": ["a", None],
        "images": [None, f"s.{2**31 - 1}.png"],
        "touchfs_positions": [0, 2**31 - 1],
    }


@pytest.mark.parametrize(
    ("content_type", "extension"),
    [
        ("image/jpeg", "jpg"),
        ("IMAGE/JPEG; q=1", "jpg"),
        ("image/tiff", "tiff"),
        ("image/webp", "webp"),
        ("image/gif", "gif"),
        ("image/bmp", "bmp"),
        ("image/avif", "avif"),
    ],
)
def test_extensions_of_content_types(writer, content_type, extension):
    assert document(writer, [image(0, b"?", content_type=content_type)])["images"] == [f"s.0.{extension}"]


@pytest.mark.parametrize("content_type", [None, "", "image/x-odd"])
@pytest.mark.parametrize(
    ("data", "extension"),
    [(make_image("jpg"), "jpg"), (make_tiff(1), "tiff"), (make_image("webp"), "webp"), (b"hello", "bin"), (b"", "bin")],
)
def test_without_a_content_type_the_first_bytes_say_what_an_image_is(writer, content_type, data, extension):
    path = writer.write(item_batch([image(0, data, content_type=content_type)]))
    assert read_tar(path)[f"s.0.{extension}"] == data


def test_an_image_without_bytes_is_named_and_is_no_member(tmp_path):
    writer = InterleavedWebdatasetWriter(tmp_path, materialize_on_write=False)
    path = writer.write(item_batch([image(0, None), image(1, PNG), image(2, None, content_type=None)]))
    assert list(read_tar(path)) == ["s.1.png", "s.json"]
    assert read_document(path)["images"] == ["s.0.png", "s.1.png", "s.2.bin"]


def test_a_text_that_is_null_keeps_its_row(writer):
    found = document(writer, [text(0, None, lang="de"), text(1, "b", lang="en")])
    assert found["texts"] == ["", "b"]
    assert found["lang"] == ["de", "en"]


def test_columns_with_values_in_images_texts_or_both_are_lists(writer):
    rows = [
        metadata(url="u"),
        text(0, "a", lang="de", mixed="0"),
        image(1, PNG, width=7, nothing=None),
        text(2, "b"),
        image(3, PNG, mixed="3"),
    ]
    found = document(writer, rows, {"width": pa.int64()})
    assert found["lang"] == ["de", None]
    assert found["width"] == [7, None]
    assert found["mixed"] == ["0", None, None, "3"]
    assert found["url"] == "u"
    assert "nothing" not in found


def test_lists_are_in_the_order_of_positions(writer):
    rows = [image(5, PNG, name="b"), image(2, PNG, name="a")]
    assert document(writer, rows)["name"] == ["a", "b"]


def test_values_of_items_beside_one_of_the_metadata_are_reported(writer, caplog):
    rows = [metadata(url="u", same="x"), text(0, "a", url="v", same="x")]
    with caplog.at_level(logging.WARNING):
        found = document(writer, rows)
    assert (found["url"], found["same"]) == ("u", "x")
    assert caplog.messages == ["metadata rows have the columns url too, so values of items are not written"]


def test_several_metadata_rows_make_one_object(writer):
    assert document(writer, [metadata(a="1"), metadata(b="2", a="1")])["b"] == "2"
    with pytest.raises(ArgumentValueError, match="metadata rows of one sample differ in the column 'a'"):
        writer.write(item_batch([metadata(a="1"), metadata(a="2")]))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.list_(pa.string()), ["a", None], ["a", None]),
        (pa.large_binary(), b"\x00\xff", "AP8="),
        (pa.timestamp("us"), datetime.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05.000000"),
        (pa.timestamp("s", tz="UTC"), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02T00:00:00Z"),
        (pa.date32(), datetime.date(2026, 1, 2), "2026-01-02"),
        (pa.decimal128(30, 2), Decimal("12345678901234567890.12"), "12345678901234567890.12"),
        (pa.struct({"a": pa.int8(), "b": pa.binary()}), {"a": 1, "b": b"x"}, {"a": 1, "b": "eA=="}),
        (pa.map_(pa.string(), pa.int8()), [("k", 1)], [["k", 1]]),
        (pa.float64(), 0.1, 0.1),
        (pa.float32(), float("inf"), "Infinity"),
        (pa.bool_(), False, False),
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.dictionary(pa.int8(), pa.string()), "x", "x"),
    ],
)
@pytest.mark.parametrize("of", ["metadata", "image"])
def test_values_of_all_types_are_passed_through(writer, kind, value, expected, of):
    rows = [metadata(), image(0, PNG), image(1, PNG)]
    row = rows[of == "image"]
    row["column"] = value
    found = document(writer, rows, {"column": kind})
    assert found["column"] == (expected if of == "metadata" else [expected, None])


def test_nan_is_null(writer):
    nan = float("nan")
    rows = [metadata(score=nan), image(0, PNG, quality=0.5), image(1, PNG, quality=nan)]
    found = document(writer, rows, {"score": pa.float64(), "quality": pa.float64()})
    assert "score" not in found
    assert found["quality"] == [0.5, None]


@pytest.mark.parametrize("column", ["texts", "images", "touchfs_positions"])
def test_a_column_cannot_replace_a_list_of_the_json(writer, tmp_path, column):
    with pytest.raises(ArgumentValueError, match=f"the column '{column}' has the name of a list"):
        writer.write(item_batch([metadata(**{column: "x"}), text(0, "a")]))
    assert list((tmp_path / "out").iterdir()) == []


def test_lists_can_have_other_names(tmp_path):
    writer = InterleavedWebdatasetWriter(tmp_path, texts_field="paragraphs", images_field="figures")
    assert document(writer, [metadata(texts="x"), text(0, "a"), image(1, PNG)]) == {
        "sample_id": "s",
        "paragraphs": ["a", None],
        "figures": [None, "s.1.png"],
        "texts": "x",
    }
    with pytest.raises(ArgumentValueError, match="cannot have the names"):
        InterleavedWebdatasetWriter(tmp_path, texts_field="images")


def test_other_modalities_are_refused_before_anything_is_written(tmp_path, writer):
    video = text(0, "a", "t") | {"modality": "video"}
    with pytest.raises(
        ValueError, match=r"Unsupported modality \['video'\]. Supported: \['image', 'metadata', 'text'\]"
    ):
        writer.write(item_batch([text(0, "a"), video]))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(("row", "position"), [(text(-2, "a"), -2), (image(-1, PNG), -1), (metadata(), 3)])
def test_positions_that_no_list_has_are_refused(tmp_path, writer, row, position):
    """Curator's writer leaves such rows out."""
    with pytest.raises(ArgumentValueError, match=f"has position {position}: metadata rows have -1"):
        writer.write(item_batch([text(0, "a"), row | {"position": position}]))
    assert list((tmp_path / "out").iterdir()) == []


def test_tars_have_no_options(tmp_path):
    with pytest.raises(ArgumentValueError, match="no option 'compression'"):
        InterleavedWebdatasetWriter(tmp_path, write_kwargs={"compression": "gzip"})


def frame_rows(path, count):
    refs = [format_source_ref(SourceRef(str(path), f"{1:032x}.tiff", None, None, number)) for number in range(count)]
    return [image(number, None, content_type="image/tiff", source_ref=ref) for number, ref in enumerate(refs)]


def test_frames_of_a_tiff_are_copied_and_not_encoded_again(tmp_path, writer):
    """The original tool decodes and encodes the JPEG data of each frame, which loses a second time."""
    sample = mint_sample(1, frames=3, compression="jpeg")
    path = make_wds_tar(tmp_path / "a.tar", [sample])
    with writer.writing([str(path)]) as shard:
        shard.append(item_batch(frame_rows(path, 3), sources=(str(path),)))
    (tiff,) = sample.members.values()
    members = read_tar(shard.path)
    assert shard.reencoded_frames == 0
    for number in range(3):
        own = members[f"s.{number}.tiff"]
        assert own[-200:] in tiff


def test_frames_that_are_encoded_again_are_counted(tmp_path, writer):
    tiff = make_tiff(2, "raw").replace(b"\x17\x01\x04\x00\x01\x00\x00\x00", b"\xff\xff\x04\x00\x01\x00\x00\x00")
    path = make_wds_tar(tmp_path / "a.tar", [(f"{1:032x}.tiff", tiff)])
    with writer.writing([str(path)]) as shard:
        shard.append(item_batch(frame_rows(path, 2), sources=(str(path),)))
    assert shard.reencoded_frames == 2
    assert len(read_tar(shard.path)) == 3
