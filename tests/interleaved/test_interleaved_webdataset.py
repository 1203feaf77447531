"""The reader of WebDataset tars of interleaved samples."""

import io
import json
import logging
import pickle
import tarfile

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from interleaved.test_materialize_frames import shared_strips
from interleaved_tars import WdsSample, compress, make_image, make_tiff, make_wds_tar, mint_sample
from PIL import Image
from tars import add

from touchfs.core.errors import ArgumentTypeError, ArgumentValueError, FormatError, NotFoundError
from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.materialize import materialize
from touchfs.interleaved.read.files import ItemPartition
from touchfs.interleaved.read.webdataset import InterleavedWebdatasetReader
from touchfs.limits import Limits

NOWHERE = {"path": None, "member": None, "byte_offset": None, "byte_size": None}


def read_rows(path, **parameters):
    """All rows of a tar, with parsed locators."""
    (batch,) = InterleavedWebdatasetReader(str(path), **parameters)
    return [row | {"source_ref": json.loads(row["source_ref"])} for row in batch.table.to_pylist()]


def images(rows):
    return [row for row in rows if row["modality"] == "image"]


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_rows_of_a_sample(tmp_path):
    png = make_image("png")
    sample = WdsSample("a", ["one", None, None, "two"], ["a.0.png", None, None, None], {"a.0.png": png}, {"url": "u"})
    path = str(make_wds_tar(tmp_path / "x.tar", [sample]))
    document = {"path": path, "member": "a.json", "byte_offset": 512, "byte_size": len(sample.document())}
    image = {"path": path, "member": "a.0.png", "byte_offset": 1536, "byte_size": len(png)}
    rows = read_rows(path)
    assert [(row["position"], row["modality"], row["content_type"], row["text_content"]) for row in rows] == [
        (-1, "metadata", "application/json", None),
        (0, "text", "text/plain", "one"),  # a text and an image may have one position
        (0, "image", "image/png", None),
        (3, "text", "text/plain", "two"),  # gaps stay
    ]
    assert [row["source_ref"] for row in rows] == [document, document, image, document]
    assert [row["url"] for row in rows] == ["u", None, None, None]
    assert all(row["sample_id"] == "a" and row["binary_content"] is None for row in rows)
    assert all(row["materialize_error"] is None for row in rows)
    assert (tmp_path / "x.tar").read_bytes()[1536:][: len(png)] == png


def test_an_image_without_a_member_of_its_own(tmp_path):
    """The default is the member that image_member_field names, else the first token's, else the one beside the JSON."""
    members = {"a.jpg": make_image("jpg"), "b.png": make_image("png")}
    for passthrough, tokens, expected in (
        ({"file": "b.png"}, ["page_1"], ["b.png"]),
        ({"file": "missing.png"}, ["page_1", "b.png"], ["b.png", "b.png"]),
        ({}, ["page_1", 17, {"a": 1}], ["a.jpg"] * 3),
        ({"file": 3}, [["b.png"]], ["a.jpg"]),
    ):
        path = make_wds_tar(tmp_path / "x.tar", [WdsSample("a", [], tokens, members, passthrough)])
        rows = images(read_rows(path, image_member_field="file"))
        assert [row["source_ref"]["member"] for row in rows] == expected


def test_an_image_that_is_nowhere(tmp_path):
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample("a", [], ["missing.png"])])
    for on_read in (False, True):
        (row,) = images(read_rows(path, materialize_on_read=on_read))
        assert (row["source_ref"], row["content_type"]) == (NOWHERE, None)
        assert (row["binary_content"], row["materialize_error"]) == (None, None)


@pytest.mark.parametrize("name", ["a.JPG", "a.Tiff", "a.PNG"])
def test_upper_case_extensions(tmp_path, name):
    data = make_image(name[2:].lower())
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample("a", [], ["page"], {name: data}, suffix=".JSON")])
    (row,) = images(read_rows(path, materialize_on_read=True))
    assert (row["source_ref"]["member"], row["binary_content"]) == (name, data)


def test_the_id_is_in_the_json(tmp_path):
    """Both spellings of a dot in the name of a member mean the id that the JSON has."""
    samples = [
        WdsSample("a%2Eb%2Fc", ["t"], [], {}, {"sample_id": "a.b/c"}),
        WdsSample("d.e%2Ff", ["t"], [], {}, {"sample_id": "d.e/f"}),
        WdsSample("g.h", ["t"], []),
        WdsSample("number", ["t"], [], {}, {"sample_id": 12}),
        WdsSample("null", ["t"], [], {}, {"sample_id": None, "other": "o"}),
    ]
    path = make_wds_tar(tmp_path / "x.tar", samples)
    ids = [row["sample_id"] for row in read_rows(path) if row["modality"] == "metadata"]
    assert ids == ["a.b/c", "d.e/f", "g.h", "12", "null"]
    ids = [row["sample_id"] for row in read_rows(path, sample_id_field="other") if row["modality"] == "metadata"]
    assert ids == ["a%2Eb%2Fc", "d.e%2Ff", "g.h", "number", "o"]


def test_samples_of_one_name_in_two_folders(tmp_path):
    samples = [
        WdsSample(key, [key], ["page"], {f"{key}.png": make_image("png", seed=seed)})
        for seed, key in enumerate(["./d1/a", "d2/a", "d2/b", "c"])
    ]
    rows = read_rows(make_wds_tar(tmp_path / "x.tar", samples))
    assert [row["sample_id"] for row in rows[::3]] == ["d1/a", "d2/a", "b", "c"]
    assert [row["source_ref"]["member"] for row in images(rows)] == ["./d1/a.png", "d2/a.png", "d2/b.png", "c.png"]


def test_what_is_not_a_list_has_no_items(tmp_path):
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample("a", "text", {"image": 1}), WdsSample("b", None, 3)])
    assert [row["modality"] for row in read_rows(path)] == ["metadata", "metadata"]


def test_texts_that_are_no_strings(tmp_path):
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample("a", [1, "", None, 2.5, True], [])])
    assert [row["text_content"] for row in read_rows(path)[1:]] == ["1", "", "2.5", "True"]


def test_bytes_on_read_are_those_of_the_members(tmp_path):
    members = {f"{number}.{kind}": make_image(kind, seed=number) for number, kind in enumerate(["jpg", "png", "webp"])}
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample("a", [], list(members), members)])
    rows = images(read_rows(path, materialize_on_read=True))
    assert [row["binary_content"] for row in rows] == list(members.values())
    assert not any("frame_index" in row["source_ref"] for row in rows)


@pytest.mark.parametrize("compression", [None, "jpeg", "tiff_lzw", "tiff_adobe_deflate"])
def test_frames_of_a_tiff(tmp_path, compression):
    """Frames are counted for each member, and each becomes a file of one frame, with the same pixels."""
    first, second = make_tiff(3, compression, seed=1), make_tiff(2, compression, seed=9)
    tokens = ["page_1", "b.tif", "page_2", None, "b.tif", "page_3"]
    sample = WdsSample("a", [], tokens, {"a.tiff": first, "b.tif": second})
    path = make_wds_tar(tmp_path / "x.tar", [sample, WdsSample("c", [], ["a.tiff"])])
    rows = images(read_rows(path, materialize_on_read=True))
    frames = [(row["source_ref"]["member"], row["source_ref"]["frame_index"]) for row in rows]
    # The first token with a member is the default of all that have none.
    assert frames == [("b.tif", 0), ("b.tif", 1), ("b.tif", 2), ("b.tif", 3), ("b.tif", 4), ("a.tiff", 0)]
    for row, (member, frame) in zip(rows, frames, strict=True):
        original = Image.open(io.BytesIO(second if member == "b.tif" else first))
        if frame >= original.n_frames:
            assert row["materialize_error"] == f"failed to extract frame {frame} from '{member}'"
            assert row["binary_content"] == second  # as NeMo Curator has it
            continue
        original.seek(frame)
        assert Image.open(io.BytesIO(row["binary_content"])).n_frames == 1
        assert np.array_equal(pixels(row["binary_content"]), np.asarray(original.convert("RGB")))


def test_frames_that_are_encoded_again_are_counted(tmp_path):
    """Each batch has the number of its own frames, also after resuming."""
    samples = [
        WdsSample(f"s{number}", [], ["page"] * 2, {f"s{number}.tiff": shared_strips() if number % 2 else make_tiff(2)})
        for number in range(4)
    ]
    path = str(make_wds_tar(tmp_path / "x.tar", samples))
    reader = InterleavedWebdatasetReader(path, materialize_on_read=True, max_batch_bytes=1)
    (partition,) = reader.partitions()
    steps = list(reader.steps(partition))
    assert [batch.reencoded_frames for batch, _ in steps] == [0, 2, 0, 2]
    assert [batch.reencoded_frames for batch, _ in reader.steps(partition, steps[0][1])] == [2, 0, 2]
    (batch,) = InterleavedWebdatasetReader(path, materialize_on_read=True)
    assert batch.reencoded_frames == 4


@pytest.mark.parametrize("suffix", [".tar.gz", ".TGZ", ".tar.zst", ".tar.xz", ".tar.bz2"])
def test_a_compressed_tar_has_no_ranges(tmp_path, suffix):
    samples = [mint_sample(1), WdsSample("a", [], ["a.png"], {"a.png": make_image("png")})]
    plain = make_wds_tar(tmp_path / "x.tar", samples)
    packed = make_wds_tar(tmp_path / f"x{suffix}", samples)
    for row in read_rows(packed):
        assert (row["source_ref"]["byte_offset"], row["source_ref"]["byte_size"]) == (None, None)
        assert row["source_ref"]["path"] == str(packed)
    expected, found = (images(read_rows(path, materialize_on_read=True)) for path in (plain, packed))
    assert [row["binary_content"] for row in found] == [row["binary_content"] for row in expected]
    assert [row["source_ref"] | {"path": str(plain)} for row in found] == [
        row["source_ref"] | {"byte_offset": None, "byte_size": None} for row in expected
    ]
    assert not any(row["materialize_error"] for row in found)


def test_a_compressed_tar_whose_extension_is_in_upper_case(tmp_path):
    image = make_image("png")
    path = make_wds_tar(tmp_path / "x.tar.gz", [WdsSample("a", [], ["a.png"], {"a.png": image})])
    path = path.rename(tmp_path / "X.TAR.GZ")
    for found in (tmp_path, path):
        (batch,) = InterleavedWebdatasetReader(str(found))
        assert materialize(batch).table["binary_content"].drop_null().to_pylist() == [image]


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_tars_elsewhere(tmp_path, suffix):
    samples = [mint_sample(1), WdsSample("a", [], ["a.png"], {"a.png": make_image("png")})]
    local = make_wds_tar(tmp_path / f"x{suffix}", samples)
    with fsspec.open(url := f"memory://interleaved{suffix}/x{suffix}", "wb") as file:
        file.write(local.read_bytes())
    for parameters in ({}, {"materialize_on_read": True}):
        found = read_rows(f"memory://interleaved{suffix}", **parameters)
        expected = read_rows(local, **parameters)
        there = [row["source_ref"] | {"path": url} for row in expected]
        assert found == [row | {"source_ref": ref} for row, ref in zip(expected, there, strict=True)]


def test_an_empty_tar_has_the_columns_that_are_asked_for(tmp_path):
    path = make_wds_tar(tmp_path / "x.tar", [])
    reader = InterleavedWebdatasetReader(
        str(path), fields=("url",), per_image_fields=("height",), per_text_fields=("url2",)
    )
    (batch,) = reader
    assert (batch.count(), batch.source_files) == (0, (str(path),))
    assert batch.table.column_names[-3:] == ["url", "height", "url2"]
    (step,) = reader.steps(*reader.partitions())
    assert list(reader.steps(*reader.partitions(), step[1])) == []
    (batch,) = reader.batches(ItemPartition(()))
    assert batch.count() == 0


def test_fields_that_are_named(tmp_path, caplog):
    more = {"url": "u", "license": "l", "crawl_date": "d"}
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample(f"s{number}", ["t"], [], {}, more) for number in range(5)])
    (batch,) = InterleavedWebdatasetReader(str(path), fields=("missing", "url"))
    assert batch.table.column_names[-2:] == ["missing", "url"]
    assert batch.table["missing"].null_count == batch.count()
    assert sorted(record.getMessage() for record in caplog.records) == [
        "fields= leaves out columns that the files have: license, crawl_date",
        "fields= names columns that the JSON of a sample lacks, which become null: missing",
    ]
    for name in ("texts", "images", "sample_id", "position"):
        with pytest.raises(ValueError, match="fields contains reserved keys"):
            InterleavedWebdatasetReader(str(path), fields=(name,))


def test_values_for_each_image_and_text(tmp_path, caplog):
    lists = {"height": [1, 2], "language": ["en", "de", "too many"], "kind": [[1], None]}
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample("a", ["x", None, "y"], [None, "p", "q", "r"], {}, lists)])
    rows = read_rows(path, per_image_fields=("height", "kind", "missing"), per_text_fields=("language",))
    assert [row["height"] for row in rows] == [None, None, 1, None, 2, None]
    assert [row["kind"] for row in rows] == [None, None, "[1]", None, None, None]
    assert [row["language"] for row in rows] == [None, "en", None, "de", None, None]
    said = [record.getMessage() for record in caplog.records]
    assert "no values for each item in the JSON of a sample: missing" in said
    assert "not as many values as items in the JSON of a sample: height, kind" in said
    assert "not as many values as items in the JSON of a sample: language" in said
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample("a", ["x"], [], {}, {"language": "en"})])
    with pytest.raises(TypeError, match="must be a list"):
        read_rows(path, per_text_fields=("language",))


@pytest.mark.parametrize(
    ("values", "expected", "kind"),
    [
        ([1, None, 2], [1, None, 2], pa.int64()),
        ([1, 2.5], [1.0, 2.5], pa.float64()),
        ([True, None], [True, None], pa.bool_()),
        ([None, None], [None, None], pa.null()),
        (["a", "b"], ["a", "b"], pa.string()),
        ([1, "a"], ["1", "a"], pa.string()),
        ([True, 1], ["true", "1"], pa.string()),
        ([2**60, 2.5], [str(2**60), "2.5"], pa.string()),
        ([2**64, 1], [str(2**64), "1"], pa.string()),
        ([{"a": ["ü"]}, "b"], ['{"a": ["ü"]}', "b"], pa.string()),
    ],
)
def test_types_of_columns(tmp_path, values, expected, kind):
    """They are those of all values, whichever of them comes first, and however the rows are divided."""
    for found, wanted in ((values, expected), (values[::-1], expected[::-1])):
        samples = [WdsSample(f"s{number}", [], [], {}, {"value": value}) for number, value in enumerate(found)]
        path = str(make_wds_tar(tmp_path / "x.tar", samples))
        for parameters in ({}, {"max_batch_bytes": 1}, {"materialize_on_read": True}):
            tables = [batch.table for batch in InterleavedWebdatasetReader(path, **parameters)]
            assert {table.schema.field("value").type for table in tables} == {kind}
            assert pa.concat_tables(tables)["value"].to_pylist() == wanted


def test_a_column_that_only_a_later_sample_has(tmp_path):
    samples = [WdsSample("a", ["t"], []), WdsSample("b", ["t"], [], {}, {"url": "u"})]
    path = make_wds_tar(tmp_path / "x.tar", samples)
    assert [row["url"] for row in read_rows(path)] == [None, None, "u", None]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b'{"texts": [', "not JSON"),
        (b"[1]", "not an object"),
        (b'{"texts": ["\xff"]}', "not UTF-8"),
        (b'{"texts": ["' + b"x" * 2000 + b'"]}', "over 1,000 bytes"),
        (rb'{"texts": ["\ud800"]}', "not Unicode"),
        (rb'{"key": ["\udfff"]}', "not Unicode"),
        (b"[" * 900, "JSON"),
    ],
)
def test_json_that_cannot_be_read(tmp_path, document, problem):
    """One error names the file and the member."""
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample("good", ["t"], []), ("bad.json", document)])
    with pytest.raises(FormatError, match=problem) as error:
        read_rows(path, limits=Limits(json=1000))
    assert error.value.path == str(path)
    assert "'bad.json'" in str(error.value)


def test_fields_without_end(tmp_path):
    """Each sample has names of its own, and a table would have a null for each of the others."""
    samples = [WdsSample(f"s{i}", ["x"], [], {}, {f"f{i}.{k}": k for k in range(1000)}) for i in range(11)]
    path = str(make_wds_tar(tmp_path / "a.tar", samples))
    for parameters in ({}, {"max_batch_bytes": 1}):
        with pytest.raises(FormatError, match=r"'s10\.json': the samples have over 10,000 fields"):
            list(InterleavedWebdatasetReader(path, **parameters))
    (batch,) = InterleavedWebdatasetReader(path, fields=("f3.3",))
    assert batch.table["f3.3"].drop_null().to_pylist() == [3]


def test_a_damaged_tar(tmp_path, caplog):
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample("a", ["t"], []), WdsSample("b", ["t"], [])])
    data = path.read_bytes()
    path.write_bytes(data[:2048])  # between two members
    assert len(read_rows(path)) == 4
    assert "no end mark" in caplog.text
    for damaged in (data[:1100], data[:1024] + b"x" * 512, b"no tar" * 200):
        path.write_bytes(damaged)
        with pytest.raises(FormatError) as error:
            read_rows(path)
        assert error.value.path == str(path)


def test_a_sparse_member_has_no_range(tmp_path):
    """Its bytes are not where its header says, as it has holes."""
    image = bytes(4096) + make_image("png")
    member = tarfile.TarInfo("a.png")
    member.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "a.png",
        "GNU.sparse.realsize": str(len(image)),
    }
    stored = f"1\n4096\n{len(image) - 4096}\n".encode().ljust(512, b"\0") + image[4096:]
    member.size = len(stored)
    path = make_wds_tar(tmp_path / "x.tar", [WdsSample("a", [], ["a.png"])])
    with tarfile.open(path, "a", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(stored))
    (row,) = images(read_rows(path, materialize_on_read=True))
    assert row["source_ref"] == {"path": str(path), "member": "a.png", "byte_offset": None, "byte_size": None}
    assert row["binary_content"] == image


@pytest.mark.parametrize("every", [311, pytest.param(61, marks=pytest.mark.variant)])
def test_every_damage_is_one_error_or_rows(tmp_path, every):
    path = make_wds_tar(tmp_path / "x.tar", [mint_sample(1, 2), WdsSample("a", ["t"], ["a.1"], {"a.1": b"x"})])
    data = path.read_bytes()
    for at in range(0, len(data), every):
        path.write_bytes(bytes([*data[:at], data[at] ^ 0x15, *data[at + 1 :]]))
        for parameters in ({"materialize_on_read": True}, {"max_batch_bytes": 500}):
            try:
                list(InterleavedWebdatasetReader(str(path), **parameters))
            except FormatError as error:
                assert error.path == str(path)


def test_members_that_are_no_files_are_no_images(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, kind in (("a.png", tarfile.SYMTYPE), ("dir.json", tarfile.DIRTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
        data = WdsSample("a", [], ["a.png"]).document()
        add(tar, "a.json", data)
    (row,) = images(read_rows(tmp_path / "x.tar"))
    assert row["source_ref"] == NOWHERE


def test_schema_and_overrides(tmp_path, caplog):
    path = str(make_wds_tar(tmp_path / "x.tar", [WdsSample("a", ["t"], [], {}, {"n": 3, "url": "u"})]))
    (batch,) = InterleavedWebdatasetReader(path, schema_overrides={"n": pa.int16(), "more": pa.float32()})
    assert batch.table.schema.field("n").type == pa.int16()
    assert batch.table.column_names[-2:] == ["n", "more"]
    schema = pa.schema([("sample_id", pa.string()), ("url", pa.large_string())])
    with caplog.at_level(logging.WARNING):
        (batch,) = InterleavedWebdatasetReader(path, schema=schema, schema_overrides={"n": pa.int16()})
    assert batch.table.schema.equals(schema)
    assert "schema_overrides is ignored" in caplog.text
    with pytest.raises(FormatError, match="does not fit its column") as error:
        list(InterleavedWebdatasetReader(path, schema_overrides={"url": pa.int16()}))
    assert error.value.path == path


def test_partitions(tmp_path, caplog):
    for name in ("b.tar", "a.TAR", "d/c.tar.gz", ".hidden.tar", "other.txt"):
        make_wds_tar(tmp_path / name, [WdsSample("a", ["t"], [])])

    def groups(paths=str(tmp_path), **parameters):
        partitions = InterleavedWebdatasetReader(paths, **parameters).partitions()
        return [[file.removeprefix(f"{tmp_path}/") for file in partition.files] for partition in partitions]

    assert groups() == [["a.TAR"], ["b.tar"], ["d/c.tar.gz"]]
    assert groups([tmp_path, tmp_path / "d"], files_per_partition=2) == [["a.TAR", "b.tar"], ["d/c.tar.gz"]]
    assert groups(blocksize=1000) == [["d/c.tar.gz"], ["a.TAR"], ["b.tar"]]
    assert groups(tmp_path / "other.txt") == [["other.txt"]]
    assert groups(f"{tmp_path}/*.tar") == [["b.tar"]]
    assert groups(str(tmp_path), file_extensions=[".gz"]) == [["d/c.tar.gz"]]
    with pytest.raises(NotFoundError):
        groups(str(tmp_path / "missing"))
    assert groups(str(tmp_path), file_extensions=[".none"]) == []
    assert "no files with the extensions .none" in caplog.text
    for wrong in ({"files_per_partition": 1, "blocksize": 1}, {"files_per_partition": 0}, {"blocksize": 0}):
        with pytest.raises(ArgumentValueError):
            groups(**wrong)
    with pytest.raises(ArgumentTypeError):
        groups(3)


def test_the_name_of_the_dataset(tmp_path):
    path = make_wds_tar(tmp_path / "Pages" / "x.tar", [WdsSample("a", ["t"], [])])
    (batch,) = InterleavedWebdatasetReader([path])
    assert batch.dataset_name == "pages"


def test_a_reader_travels_and_describes_itself(tmp_path):
    path = str(make_wds_tar(tmp_path / "x.tar", [mint_sample(1)]))
    secret = {"storage_options": {"key": "secret"}}
    reader = InterleavedWebdatasetReader(
        path, max_batch_bytes=10, schema_overrides={"n": pa.int16()}, read_kwargs=secret
    )
    (own,), (copied,) = list(reader), list(pickle.loads(pickle.dumps(reader)))
    assert own.table.equals(copied.table)
    described = json.dumps(reader.describe())
    assert "secret" not in described
    assert str(tmp_path) not in described
    assert described != json.dumps(InterleavedWebdatasetReader(path).describe())


def test_compressed_data_that_is_damaged(tmp_path):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(compress("x.gz", b"no tar" * 200))
    with pytest.raises(FormatError):
        read_rows(path)
    path.write_bytes(b"no gzip")
    with pytest.raises(FormatError):
        read_rows(path)


def test_locators_have_absolute_paths_without_steps_up(tmp_path, monkeypatch):
    """A Parquet file of locators is elsewhere, and may be allowed to read them."""
    make_wds_tar(tmp_path / "data/deep/a.tar", [WdsSample("s", [], ["s.png"], {"s.png": make_image("png")})])
    (tmp_path / "link").symlink_to(tmp_path / "data/deep")
    monkeypatch.chdir(tmp_path / "data")
    for given in ("deep/a.tar", "../data/deep/*.tar", "deep/..", "../link/../deep"):
        (batch,) = InterleavedWebdatasetReader(given)
        assert {ref.path for ref in batch.source_refs()} == {str(tmp_path / "data/deep/a.tar")}
        moved = InterleavedBatch(batch.table)
        (image,) = materialize(moved, [str(tmp_path / "data")]).table["binary_content"].drop_null().to_pylist()
        assert image == make_image("png")
