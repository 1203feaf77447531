"""`--overlay` of the commands that open a dataset."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tars import write_tar

import touchfs as touchfs_library
from touchfs.features import Features, Value


@pytest.fixture(scope="module")
def overlay(tmp_path_factory):
    path = tmp_path_factory.mktemp("overlay") / "quality.parquet"
    pq.write_table(pa.table({"key": ["talks/monday", "nobody"], "snr": [21.5, 3.0], "tags": [["clean"], []]}), path)
    return path


def test_commands_show_the_rows_of_an_overlay(shards, overlay, touchfs):
    def told(*arguments):
        done = touchfs(*arguments)
        assert done.returncode == 0, done
        return done.stdout.decode()

    given = "--overlay", overlay
    found = told("info", *given, "--json", shards)
    assert json.loads(found)["samples"] == 10
    place = f"{shards}:shards/000000000/talks"
    assert {"monday.snr.txt", "monday.quality.overlay.json"} <= {*told("ls", *given, place).split()}
    assert told("cat", *given, f"{place}/monday.snr.txt") == "21.5"
    assert "size:                  4\n" in told("stat", *given, f"{place}/monday.snr.txt")
    assert told("iterate", *given, "--where", 'snr > 20 and tags contains "clean"', shards).endswith("monday.wav\n")
    (line,) = told("iterate", *given, "--where", "snr exists", "--format", "json", shards).splitlines()
    assert json.loads(line)["files"]["snr.txt"].endswith("talks/monday.snr.txt")
    assert told("verify", *given, shards).endswith("no problem\n")


def test_a_spec_names_the_fields_of_an_overlay(shards, overlay, touchfs, tmp_path):
    given = "--overlay", overlay, "--state-dir", tmp_path
    spec = json.dumps({"where": "snr > 20", "output": "key"})
    for words in (("create", shards, "it", "--spec", spec), ("next", shards, "it")):
        done = touchfs("iterator", *words, *given)
        assert done.returncode == 0, done
    assert done.stdout == b"talks/monday\n"
    for words in (("create", shards, "all"), ("next", shards, "all")):
        assert touchfs("iterator", *words, *given).returncode == 0
    done = touchfs("iterator", "next", shards, "all", "--state-dir", tmp_path)
    assert b"or is opened with other overlays" in done.stderr


def test_the_log_counts_what_has_no_other_side(shards, tmp_path, touchfs):
    path = tmp_path / "quality.jsonl"
    path.write_text('{"key": "talks/monday", "snr": 1}\n{"key": "nobody", "snr": 2}\n')
    said = touchfs("index", "--overlay", path, shards).stderr.decode()
    assert f"{path}: 1 row is of no sample\n" in said and f"{path}: 9 of 10 samples have no row\n" in said
    refused = touchfs("ls", "--overlay", f"{path}:uid", shards)
    assert (
        refused.stderr.decode().count("\n") == 1
        and b"has no column 'uid', but key, snr: write FILE:key" in refused.stderr
    )


def files_of(path, **options):
    """The files of each sample, by its key."""
    return {sample.key: dict(sample) for sample in touchfs_library.open(path, **options)}


@pytest.mark.parametrize("kind", ["tar", "zip", "arrow", "parquet"])
def test_convert_writes_the_files_that_ls_shows(shards, overlay, touchfs, tmp_path, kind):
    done = touchfs("convert", "--overlay", overlay, shards, tmp_path / "out", "--to", kind)
    assert done.returncode == 0, done
    expected, found = files_of(shards, overlay=overlay), files_of(tmp_path / "out")
    assert expected["talks/monday"]["snr.txt"] == b"21.5"
    for key, files in expected.items():
        assert {name: found[key].get(name) for name in files} == files


@pytest.mark.parametrize(("kind", "place"), [("shar", "custom."), ("touchnet", "")])
def test_convert_writes_columns_into_the_json(shards, overlay, touchfs, tmp_path, kind, place):
    """What a target has no files for are fields, of the types that the columns have."""
    assert touchfs("convert", "--overlay", overlay, shards, tmp_path / "out", "--to", kind).returncode == 0
    samples = touchfs_library.open(tmp_path / "out")
    wanted = f'{place}snr == 21.5 and {place}tags contains "clean"'
    assert [sample.key for sample in samples.where(wanted)] == ["talks/monday"]
    monday = samples["talks/monday"].json()
    assert "caption.txt" not in monday and "quality.overlay" not in json.dumps(monday)


@pytest.mark.parametrize("kind", ["tar", "touchnet", "shar"])
def test_convert_takes_columns_of_any_name(shards, touchfs, tmp_path, kind):
    names = [
        "URL",
        "a/b",
        "..",
        "recording",
        "json",
        "wav",
        "nl\nx",
        "touchfs",
        "duration",
        "info",
        "é",
        "supervisions",
    ]
    row = {"key": "talks/monday"} | {name: f"of {name}" for name in names}
    (tmp_path / "odd.jsonl").write_text(json.dumps(row) + "\n")
    done = touchfs("convert", "--overlay", tmp_path / "odd.jsonl", shards, tmp_path / "out", "--to", kind)
    assert done.returncode == 0, done
    plain, monday = touchfs_library.open(shards)["talks/monday"], touchfs_library.open(tmp_path / "out")["talks/monday"]
    assert monday["wav"] == plain["wav"] and monday.text == plain.text
    assert {"tar": monday.json(), "touchnet": monday.json()}.get(kind, monday.json().get("custom"))["a/b"] == "of a/b"
    refused = touchfs("convert", "--overlay", tmp_path / "none.jsonl", shards, tmp_path / "other", "--to", kind)
    assert refused.returncode == 1 and refused.stderr.count(b"\n") == 1


def test_convert_writes_the_columns_of_named_features(shards, overlay, touchfs, tmp_path):
    features = Features({"__key__": Value("string"), "snr": Value("float64"), "txt": Value("string")})
    (tmp_path / "features.json").write_text(json.dumps(features.to_json()))
    given = "--overlay", overlay, "--features", tmp_path / "features.json", "--to", "parquet"
    assert touchfs("convert", *given, shards, tmp_path / "out").returncode == 0
    rows = {row["__key__"]: row["snr"] for row in pq.read_table(tmp_path / "out").to_pylist()}
    assert rows["talks/monday"] == 21.5 and rows["numbers"] is None


def test_convert_writes_the_table_beside_a_tar(touchfs, tmp_path):
    write_tar(tmp_path / "img/00000.tar", {"a.jpg": b"j", "b.jpg": b"j"})
    pq.write_table(pa.table({"key": ["b"], "url": ["https://b"]}), tmp_path / "img/00000.parquet")
    assert touchfs("convert", tmp_path / "img", tmp_path / "out", "--to", "tar").returncode == 0
    assert files_of(tmp_path / "out") == files_of(tmp_path / "img")
    assert files_of(tmp_path / "out")["b"]["url.txt"] == b"https://b"
    without = "convert", "--overlay", "none", tmp_path / "img", tmp_path / "without", "--to", "tar"
    assert touchfs(*without).returncode == 0
    assert [*files_of(tmp_path / "without")["b"]] == ["jpg"]


def test_an_unfinished_conversion_is_of_one_overlay(touchfs, tmp_path):
    """Another overlay, or another content of it, makes other shards."""
    mine = tmp_path / "o.jsonl"
    mine.write_text('{"key": "b", "url": 1, "URL": 2}\n')
    write_tar(tmp_path / "in/0.tar", {"a.x": b"1", "b.x": b"1"})
    bad = "convert", "--num-utt-per-shard", "1", "--to", "tar", tmp_path / "in", tmp_path / "out"
    assert b"are one to WebDataset" in touchfs(*bad, "--overlay", mine).stderr
    assert (tmp_path / "out/000000.tar").exists()
    assert b"was begun with overlay" in touchfs(*bad).stderr
    mine.write_text('{"key": "b", "url": 1}\n')
    assert b"has changed since" in touchfs(*bad, "--overlay", mine).stderr


def test_other_commands_have_the_files_of_an_overlay(shards, overlay, touchfs, tmp_path):
    given = "--overlay", overlay
    place = f"{shards}:shards/000000000/talks/monday"
    assert touchfs("cp", *given, f"{place}.snr.txt", tmp_path / "copy").returncode == 0
    assert (tmp_path / "copy").read_bytes() == b"21.5"
    assert b"21.5" in touchfs("show", *given, f"{place}.quality.overlay.json").stdout


def test_info_lists_the_overlays_that_are_joined(shards, overlay, touchfs, tmp_path):
    (tmp_path / "odd.jsonl").write_text('{"key": "talks/monday", "a\\nb": 1}\n')
    given = "--overlay", overlay, "--overlay", tmp_path / "odd.jsonl"
    told = [
        line for line in touchfs("info", *given, shards).stdout.decode().splitlines() if line.startswith("overlay:")
    ]
    assert told == [
        "overlay:        quality (snr, tags): 1 key matched, 1 key of no sample, 9 samples without a row",
        "overlay:        odd (a\\nb): 1 key matched, 9 samples without a row",
    ]
    (first, _) = json.loads(touchfs("info", *given, "--json", shards).stdout)["overlays"]
    counts = {"matched": 1, "surplus": 1, "missing": 9}
    assert first == {"name": "quality", "path": str(overlay), "columns": ["snr", "tags"], **counts}
    assert b"overlay:" not in touchfs("info", shards).stdout
    write_tar(tmp_path / "img/00000.tar", {"a.jpg": b"j", "b.jpg": b"j"})
    pq.write_table(pa.table({"key": ["b"], "url": ["https://b"]}), tmp_path / "img/00000.parquet")
    told = touchfs("info", tmp_path / "img").stdout.decode()
    assert "overlay:        beside 1 shard (url): 1 key matched, 1 sample without a row\n" in told


def test_rows_that_a_shard_stores_are_no_rows_of_the_overlay(shards, overlay, touchfs, tmp_path):
    """As of a converted dataset: they have no numbers of rows."""
    assert touchfs("convert", "--overlay", overlay, shards, tmp_path / "out", "--to", "tar").returncode == 0
    for _ in range(2):
        told = touchfs("info", "--overlay", overlay, tmp_path / "out").stdout.decode()
        assert "quality (snr, tags): 0 keys matched, 2 keys of no sample, 10 samples without a row\n" in told


@pytest.mark.parametrize("kind", ["arrow", "lance", "parquet"])
def test_a_table_gets_the_columns_as_they_are(touchfs, tmp_path, kind):
    """With their types, after its own, of which none changes."""
    for name, keys in (("0", ["a", "b"]), ("1", ["c", "d"])):
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(pa.table({"key": keys, "n": [1, 2]}), tmp_path / f"in/{name}.parquet")
    rows = [
        {"key": "b", "score": 1, "tags": [], "n": 9, "odd": 1},
        {"key": "d", "score": "NaN", "tags": ["x"], "odd": "x", "new\nline": True},
        {"key": "c", "score": 0.5},
    ]
    (tmp_path / "o.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = "--overlay", tmp_path / "o.jsonl", "--to", kind
    done = touchfs("convert", *given, tmp_path / "in", tmp_path / "out")
    assert done.returncode == 0, done
    table = touchfs_library.open(tmp_path / "out").to_arrow(["key", "n", "score", "tags", "odd", "new\nline"])
    assert str(table.schema.field("score").type) == "double" and "list<" in str(table.schema.field("tags").type)
    found = table.to_pylist()
    assert [row["n"] for row in found] == [1, 2, 1, 2]
    assert [str(row["score"]) for row in found] == ["None", "1.0", "0.5", "nan"]
    assert [row["tags"] for row in found] == [None, [], None, ["x"]]
    assert [row["odd"] for row in found] == [None, "1", None, "x"]
    assert [row["new\nline"] for row in found] == [None, None, None, True]
    chosen = "--where", "score < 1", "--take", "1"
    assert touchfs("convert", *given, *chosen, tmp_path / "in", tmp_path / "one").returncode == 0
    assert [sample.key for sample in touchfs_library.open(tmp_path / "one").where("score == 0.5")] == ["c"]
