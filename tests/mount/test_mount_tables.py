"""Tables in a real mount: rows as files, whole columns, keys, and what lists and iterators say of them."""

import json
import os
import random
import stat
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from arrow_tables import JPG, PNG, pictures, write_arrow, write_cache
from mounts import touchfs
from parquet_tables import write_parquet
from touchfs_mount.requests.access import read_source_modes

import touchfs as library
from touchfs.indexing import open_dataset

pytestmark = pytest.mark.usefixtures("has_libraries")

ROWS = 120
# Of the first files of the rows with pictures
ENDS = ["jpeg", "jpg", "json", "json", "gif", "jpg", "jpg"]


def wide() -> pa.Table:
    """Rows with two files each, some null, in several batches and of several groups of rows."""
    choose = np.random.default_rng(0)
    return pa.table(
        {
            "image": [PNG + bytes([i % 256]) * i if i % 7 else None for i in range(ROWS)],
            "vector": pa.FixedSizeListArray.from_arrays(choose.random(4 * ROWS, np.float32), 4),
            "n": list(range(ROWS)),
            "label": [i % 3 for i in range(ROWS)],
            "text": [f"row {i} ü" for i in range(ROWS)],
        }
    )


@pytest.mark.parametrize(
    ("write", "form"),
    [
        (write_arrow, "file-zstd"),
        (write_parquet, "snappy"),
        pytest.param(write_arrow, "stream", marks=pytest.mark.variant),
        pytest.param(write_parquet, "plain", marks=pytest.mark.variant),
    ],
)
def test_rows_are_directories_of_files(mount, tmp_path, write, form):
    table = wide()
    top = mount(write(tmp_path / f"t.{write.__name__.removeprefix('write_')}", table, form, 64)).path
    assert sorted(os.listdir(top)) == [".touchfs", "by-label", "columns", "manifests", "shards"]
    shard = top / "shards" / "t"
    assert sorted(os.listdir(shard)) == [f"{i:08d}" for i in range(ROWS)]

    def check(i: int, row: dict) -> None:
        above = shard / f"{i:08d}"
        names = {"vector.npy", "row.json"} | ({"image.png"} if row["image"] is not None else set())
        assert set(os.listdir(above)) == names
        if row["image"] is not None:
            assert (above / "image.png").stat().st_size == len(row["image"])
            assert (above / "image.png").read_bytes() == row["image"]
        assert np.load(above / "vector.npy").tolist() == row["vector"]
        text = (above / "row.json").read_bytes()
        assert json.loads(text) == {name: row[name] for name in ("n", "label", "text")}
        assert (above / "row.json").stat().st_size == len(text)

    rows = [*enumerate(table.to_pylist())]
    with ThreadPoolExecutor(8) as threads:
        [*threads.map(lambda each: check(*each), random.Random(0).sample(rows, ROWS))]
    with pytest.raises(FileNotFoundError):
        (shard / "00000007" / "image.png").read_bytes()
    columns = top / "columns" / "t"
    assert sorted(os.listdir(columns)) == ["label.npy", "n.npy", "text.jsonl", "vector.npy"]
    assert np.load(columns / "n.npy").tolist() == list(range(ROWS))
    assert (np.load(columns / "vector.npy") == np.array(table["vector"].to_pylist(), np.float32)).all()
    lines = (columns / "text.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == table["text"].to_pylist()


@pytest.mark.parametrize("kind", ["Arrow", "Parquet"])
def test_the_commands_and_iterators_know_tables(mount, tmp_path, kind):
    table = pictures(("id", pa.array([f"k{i}" for i in range(7)])))
    is_cache = kind == "Arrow"
    source = write_cache(tmp_path / "cache", [table]) if is_cache else write_parquet(tmp_path / "t.parquet", table)
    top = mount(source).path
    name = "shard-00000" if is_cache else "t"
    shard = top / "shards" / name
    assert (shard / "k0.jpeg").read_bytes() == JPG == (top / "by-key" / "k0.jpeg").read_bytes()
    assert os.getxattr(shard / "k0.json", "user.touchfs.key") == b"k0"
    spec = json.dumps({"where": 'label == 1 or text == "one"'})
    made = touchfs("iterator", "create", top, "some", "--spec", spec)
    assert made.returncode == 0, made.stderr
    next_file = top / ".touchfs" / "iterators" / "some" / "next"
    found = [next_file.read_text().strip() for _ in range(3)]
    assert found == [str(shard / file) for file in ("k0.jpeg", "k1.jpg", "k4.gif")]
    for command, text in (("ls", "k0.jpeg"), ("cat", '"label": 0'), ("stat", "k0")):
        done = touchfs(command, f"{source}:shards/{name}" + ("" if command == "ls" else "/k0.json"))
        assert done.returncode == 0 and text in done.stdout, done
    done = touchfs("iterate", source, "--shuffle", 7)
    assert sorted(done.stdout.split()) == [f"shards/{name}/k{i}.{end}" for i, end in enumerate(ENDS)]
    done = touchfs("info", source)
    assert "image (struct<bytes: binary, path: utf8>), label (int64), text (utf8), id (utf8)" in done.stdout
    told = json.loads(touchfs("info", source, "--json").stdout)
    assert (told["kind"], told["columns"]["label"]) == (kind, "int64")
    opened = library.open(str(source))
    assert opened[0]["jpeg"] == JPG and [each.key for each in opened.where("label == 0")] == ["k0", "k5"]
    done = touchfs("convert", source, tmp_path / "tars", "--to", "tar")
    assert done.returncode == 0, done.stderr
    again = touchfs("ls", f"{tmp_path / 'tars'}:shards/000000")
    assert set(again.stdout.split()) == set(os.listdir(shard))


def test_keys_of_nested_tables(mount, tmp_path):
    table = wide().append_column("id", pa.array([f"k{i}" for i in range(ROWS)]))
    top = mount(write_arrow(tmp_path / "t.arrow", table, rows=100), "--list-by-key").path
    linked = top / "by-key"
    assert os.readlink(linked / "k1.image.png") == "../shards/t/k1/image.png"
    assert (linked / "k1.image.png").read_bytes() == PNG + b"\1"
    assert {"k1.image.png", "k1.row.json", "k1.vector.npy", "k0.row.json"} < set(os.listdir(linked))
    assert len(os.listdir(linked)) == sum(len(files) for _, _, files in os.walk(top / "shards"))


def test_layout_and_key_are_options(mount, tmp_path):
    source = write_arrow(tmp_path / "t.arrow", pictures(("name", pa.array(list("abcdefg")))))
    top = mount(source, "--layout", "nested", "--key", "name").path
    assert (top / "shards" / "t" / "a" / "image.jpeg").read_bytes() == JPG
    assert sorted(os.listdir(top / "shards" / "t")) == list("abcdefg")


BY_LABEL = {("flat", "file"), ("flat", "cache"), ("nested", "hf"), ("nested", "parquet")}


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        pytest.param(*each, marks=[] if each in BY_LABEL else [pytest.mark.variant])
        for each in product(("flat", "nested"), ("file", "hf", "cache", "parquet"))
    ],
)
def test_rows_by_their_labels(mount, tmp_path, layout, name):
    """The names are those of Hugging Face's metadata, of the cache, or of --features."""
    names = ["cat", "a/b", "third", "unused"]
    features = {"label": {"type": "ClassLabel", "names": names}}
    (tmp_path / "features.json").write_text(json.dumps(features))
    info = {"info": {"features": {"label": {"_type": "ClassLabel", "names": names}}}}
    declared = pictures().replace_schema_metadata({"huggingface": json.dumps(info)})
    (tmp_path / "hf").mkdir()
    sources = {
        "file": (write_arrow(tmp_path / "t.arrow", pictures()), ["--features", tmp_path / "features.json"]),
        "hf": (write_arrow(tmp_path / "hf" / "t.arrow", declared), []),
        "parquet": (write_parquet(tmp_path / "t.parquet", declared), []),
        "cache": (write_cache(tmp_path / "cache", [pictures()], features=features), []),
    }
    source, options = sources[name]
    top = mount(source, "--layout", layout, *options).path
    (shard,) = os.listdir(top / "shards")
    labelled = top / "by-label"
    assert sorted(os.listdir(labelled)) == ["a%2Fb", "cat", "third", "unused"]
    assert os.listdir(labelled / "cat") == [shard] and os.listdir(labelled / "unused" / shard) == []
    found = {label: set(os.listdir(labelled / label / shard)) for label in ("cat", "a%2Fb")}
    if layout == "nested":
        assert found == {"cat": {"00000000", "00000005"}, "a%2Fb": {"00000001", "00000004"}}
        assert (labelled / "cat" / shard / "00000000" / "image.jpeg").read_bytes() == JPG
    else:
        assert found["cat"] == {"00000000.jpeg", "00000000.json", "00000005.jpg", "00000005.json"}
        assert (labelled / "cat" / shard / "00000000.jpeg").read_bytes() == JPG
    for missing in ("00000001.jpg", "00000001", "x"):
        assert not (labelled / "cat" / shard / missing).is_symlink()
    assert not (labelled / "dog").exists()


def test_videos_beside_a_table_are_for_those_who_may_read_them(tmp_path):
    """Of others, those who cannot search the directory of the videos may not read the shard, either."""
    source = write_cache(tmp_path / "cache", [pictures()])
    assets = source / "_assets" / "video"
    assets.mkdir(parents=True)
    for directory in (source, *source.parents):
        if directory == tmp_path.parent:
            break
        directory.chmod(0o755)
    for mode, others in ((0o755, 0o004), (0o700, 0)):
        assets.chmod(mode)
        (shard,) = read_source_modes(open_dataset(str(source))).shards
        assert shard.modes[stat.S_IFREG] & 0o004 == others
