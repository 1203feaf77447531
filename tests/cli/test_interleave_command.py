"""`touchfs interleave` as a user calls it."""

import json
import os
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from interleaved_tars import WdsSample, make_image, make_wds_tar, mint_sample


@pytest.fixture
def data(here):
    """Two tars with two samples each: 3 texts and 2 images, of 24x16 and 25x16."""
    for shard in range(2):
        make_wds_tar(here / f"mint/{shard}.tar", [mint_sample(2 * shard + number, frames=2) for number in range(2)])
    return here


def refused(touchfs, *arguments, status=1):
    """The error, which may come after a warning."""
    done = touchfs("interleave", *arguments, "--jobs", "1")
    assert (done.returncode, done.stdout) == (status, b"")
    assert all(line.startswith(b"touchfs: ") for line in done.stderr.splitlines()), done.stderr
    return done.stderr.decode()


def members_of(path):
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def test_there_and_back(text, data):
    where = ("--where", "aspect_ratio < 1.55")
    assert text("interleave", "mint", "parquet", "--to", "parquet", *where) == "parquet: 2 shards, 4 samples, 20 items"
    assert sorted(os.listdir("parquet")) == ["000000.parquet", "000001.parquet"]
    assert pq.read_table("parquet/000000.parquet", columns=["modality"]).num_rows == 10
    assert text("interleave", "parquet", "back", "--to", "webdataset") == "back: 2 shards, 4 samples, 20 items"
    done = text("convert", "parquet", "again", "--to", "wds", "--kind", "interleaved")
    assert done == "again: 2 shards, 4 samples, 20 items"
    found = members_of("back/000001.tar")
    assert members_of("again/000001.tar") == found
    assert list(found) == [f"{n:032x}{end}" for n in (2, 3) for end in (".1.tiff", ".json")]
    assert json.loads(found[f"{2:032x}.json"])["url"] == "https://example.org/2.pdf"


def test_the_default_is_the_kind_of_the_input(text, data):
    text("interleave", "mint", "same", "--where", 'modality == "text"')
    assert sorted(os.listdir("same")) == ["000000.tar", "000001.tar"]
    text("interleave", "same/*1.tar", "one", "--to", "parquet", "--jobs", "1")
    assert os.listdir("one") == ["000000.parquet"]


def test_several_conditions_must_all_hold(text, data):
    done = text("interleave", "mint", "out", "--where", "width < 25", "--where", "position > 0", "--to", "parquet")
    assert done == "out: 2 shards, 4 samples, 16 items"


def test_several_files_become_a_shard(text, data):
    assert text("interleave", "mint", "out", "--files-per-shard", "2") == "out: 1 shard, 4 samples, 24 items"


def test_columns_and_names_of_fields(touchfs, here):
    sample = WdsSample("k", ["one"], [None], passthrough={"id": "x", "a": 1, "b": 2}, fields=("words", "pictures"))
    make_wds_tar(here / "in.tar", [sample])
    options = ("--texts-field", "words", "--images-field", "pictures", "--sample-id-field", "id", "--fields", "a")
    done = touchfs("interleave", "in.tar", "out", "--to", "parquet", *options)
    assert (done.returncode, done.stderr) == (0, b"touchfs: fields= leaves out columns that the files have: b\n")
    rows = pq.read_table("out/000000.parquet").to_pylist()
    assert {row["sample_id"] for row in rows} == {"x"}
    assert rows[0]["a"] == 1 and "b" not in rows[0]


def test_an_image_that_cannot_be_had(touchfs, here):
    make_wds_tar(here / "in.tar", [WdsSample("k", ["x", None, "y"], [None, "gone.png", None])])
    message = refused(touchfs, "in.tar", "out", "--to", "parquet")
    assert "in.tar: Materialization failed (1 errors). First: " in message
    assert "missing path, at position 1 (sample 'k')" in message  # a tar has no locator of a member that is missing
    for policy, items in (("warn", 4), ("drop_row", 3), ("drop_sample", 0)):
        done = touchfs("interleave", "in.tar", policy, "--to", "parquet", "--on-materialize-error", policy)
        assert done.returncode == 0
        assert b"materialize: " in done.stderr and done.stderr.count(b"\n") == 1  # nothing is dropped without a word
        assert pq.read_table(f"{policy}/000000.parquet").num_rows == items


def test_only_allowed_locations_are_read(touchfs, text, here):
    (here / "elsewhere").mkdir()
    (here / "elsewhere/x.png").write_bytes(make_image("png"))
    make_wds_tar(here / "in/t.tar", [WdsSample("k", [None], ["k.png"], {"k.png": make_image("png")})])
    text("interleave", "in", "p", "--to", "parquet")
    table = pq.read_table("p/000000.parquet")
    number = table["modality"].to_pylist().index("image")
    ref = json.dumps({"path": str(here / "elsewhere/x.png"), "member": None, "byte_offset": None, "byte_size": None})
    columns = {"source_ref": [ref if i == number else None for i in range(table.num_rows)]}
    columns["binary_content"] = [None] * table.num_rows
    for name, values in columns.items():
        field = table.schema.field(name)
        table = table.set_column(table.column_names.index(name), field, [pa.array(values, field.type)])
    (here / "planted").mkdir()
    pq.write_table(table, "planted/x.parquet")
    assert "not below an allowed location" in refused(touchfs, "planted", "out")
    text("interleave", "planted", "allowed", "--allow-location", str(here / "elsewhere"))
    assert pq.read_table("allowed/000000.parquet")["binary_content"].to_pylist()[number] == make_image("png")


def test_a_column_that_is_not_there(touchfs, here):
    """It would empty the output. A later shard may have it."""
    for number, more in enumerate([{"a b": 1}, {"url": "x"}]):
        make_wds_tar(here / f"in/{number}.tar", [WdsSample(f"k{number}", ["one"], [None], passthrough=more)])
    message = refused(touchfs, "in", "out", "--where", 'urk == "x"', "--where", "wisth > 1", status=2)
    assert message.startswith('touchfs: where: no row has the field urk, wisth: there are "a b", aspect_ratio, ')
    assert ", url, width\n" in message
    assert not (here / "out").exists()
    done = touchfs("interleave", "in", "out", "--where", 'url == "x"')
    assert done.stdout == b"out: 2 shards, 1 sample, 2 items\n"
    assert done.stderr == b"touchfs: where: no row has the field url\n"  # of the first shard


def test_a_column_that_parquet_files_have_not(text, touchfs, data):
    """Where there are no rows at all, nothing is lost."""
    text("interleave", "mint", "rows", "--to", "parquet")
    assert "no row has the field urk: there are " in refused(touchfs, "rows", "out", "--where", "urk == 1", status=2)
    text("interleave", "rows", "none", "--where", 'sample_id == "nobody"')
    done = touchfs("interleave", "none", "out", "--where", "urk == 1")
    assert done.stdout == b"out: 2 shards, 0 samples, 0 items\n"


def test_wrong_usage(touchfs, data):
    assert "where, column 9" in refused(touchfs, "mint", "out", "--where", "width < ", status=2)
    assert "no such file" in refused(touchfs, "none", "out")
    (data / "empty").mkdir()
    assert "no interleaved samples here" in refused(touchfs, "empty", "out")
    (data / "mint/x.parquet").write_bytes(b"")
    assert "tars and Parquet files" in refused(touchfs, "mint", "out", status=2)
    (data / "p").mkdir()
    (data / "p/x.parquet").write_bytes(b"")
    assert "--per-image-field is for tars" in refused(touchfs, "p", "out", "--per-image-field", "x", status=2)


def test_the_output_is_not_in_what_is_read(text, touchfs, data):
    for output in ("mint", "mint/out"):
        assert "is in mint, which is read: choose another output" in refused(touchfs, "mint", output, status=2)
    assert sorted(os.listdir("mint")) == ["0.tar", "1.tar"]
    assert text("interleave", "mint", "mint/out", "--to", "parquet").startswith("mint/out: 2 shards")


def test_limits_can_be_raised_as_errors_say(touchfs, text, here):
    make_wds_tar(here / "in.tar.zst", [WdsSample("k", ["x" * 2000], ["k.png"], {"k.png": make_image("png")})])
    assert "--max-json raises the limit" in refused(touchfs, "in.tar.zst", "out", "--max-json", "1K")
    assert "Materialization failed" in refused(touchfs, "in.tar.zst", "out", "--max-decoded", "50")
    assert text("interleave", "in.tar.zst", "out", "--max-json", "4K", "--max-decoded", "1M").startswith("out: 1 shard")


def test_progress(touchfs, data):
    done = touchfs("interleave", "mint", "out", "--progress", "plain")
    assert done.stderr.startswith(b"interleaving: 0 bytes of")
