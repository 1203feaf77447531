"""Sets of `touchfs.open` as tables, Parquet files and WebDataset tars."""

import gzip
import json
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset
from PIL import Image
from touchnet import write_speech

import touchfs
from touchfs.core.errors import UsageError
from touchfs.write import TarWriter

datasets.disable_progress_bars()
JPEG = bytes.fromhex("ffd8ffe000104a46494600010100")
FEATURES = datasets.Features(
    {
        "caption": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "image": datasets.Image(),
        "vector": datasets.Sequence(datasets.Value("float32")),
    }
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("exports")


@pytest.fixture(scope="module")
def pictures(place: Path):
    """A WebDataset: labels, pictures, and JSON whose fields are of all kinds."""
    (place / "pictures").mkdir()
    for shard in range(2):
        with TarWriter(place / "pictures" / f"{shard}.tar") as tar:
            for number in range(shard * 5, shard * 5 + 5):
                fields = {
                    "width": number,
                    "score": number / 2 if number % 2 else number,
                    "mixed": number if number % 2 else "text",
                    "tags": [{"name": "x"}] if number else [],
                    "nothing": {},
                    **({"late": True} if number == 7 else {}),
                }
                files = {"jpg": JPEG + bytes([number]), "cls": b"%d\n" % (number % 3)}
                tar.add(f"p{number}", {**files, "json": json.dumps(fields).encode()})
    return touchfs.open(place / "pictures")


@pytest.fixture(scope="module", params=["arrow", "parquet", "lance"])
def table(request, place: Path):
    """The same rows in each kind of table, of which some are wanted in another order."""
    rows = {
        "caption": [f"picture {i}" for i in range(30)],
        "label": [i % 2 for i in range(30)],
        "image": [Image.new("RGB", (2, 2), (i, 0, 0)) for i in range(30)],
        "vector": [[i / 2] * 3 for i in range(30)],
    }
    made = datasets.Dataset.from_dict(rows, features=FEATURES)
    source = place / request.param
    if request.param == "arrow":
        made.save_to_disk(source, num_shards=2)
    elif request.param == "parquet":
        source.mkdir()
        for part in range(2):
            made.select(range(part * 15, part * 15 + 15)).to_parquet(source / f"{part}.parquet", batch_size=4)
    else:
        import lance

        lance.write_dataset(made.data.table.replace_schema_metadata(None), source)
    return touchfs.open(source)


def test_fields_are_columns(pictures):
    table = pictures.to_arrow()
    assert {field.name: str(field.type) for field in table.schema} == {
        "key": "string",
        "shard": "string",
        "cls": "int64",
        "width": "int64",
        "score": "double",
        "mixed": "string",
        "tags": "list<item: struct<name: string>>",
        "nothing": "string",
        "late": "bool",
    }
    assert table.to_pylist()[7] == {
        "key": "p7",
        "shard": "1",
        "cls": 1,
        "width": 7,
        "score": 3.5,
        "mixed": "7",
        "tags": [{"name": "x"}],
        "nothing": "{}",
        "late": True,
    }
    chosen = pictures.where("width > 6").shuffle(1)
    samples = [*chosen]  # a second pass would be the next epoch
    frame = chosen.to_pandas(columns=["width", "jpg", "ordinal"])
    assert [*frame] == ["width", "jpg", "ordinal"]
    assert frame["width"].tolist() == [sample.json()["width"] for sample in samples]
    assert frame["jpg"].tolist() == [sample["jpg"] for sample in samples]
    assert pictures[:0].to_arrow().column_names == ["key", "shard", "cls"]
    with pytest.raises(UsageError, match="no sample has a column 'heigth': there are "):
        pictures.to_pandas(columns=["heigth"])


@pytest.fixture(scope="module")
def speech(place):
    segments = [{"start": 0, "end": 0.5, "txt": "one"}, {"start": 0.5, "end": 1, "txt": "two"}]
    metainfo = {"sample_rate": 100, "txt": "words", "info": {"segments": segments}}
    samples = [({"key": f"talk{i}", **metainfo}, bytes(200 * (i + 1))) for i in range(4)]
    return touchfs.open(write_speech(place / "speech", samples))


def test_recordings_have_durations_and_texts(speech):
    table = speech.to_arrow()
    assert table.column_names[:4] == ["key", "shard", "duration", "text"]
    assert table.column("duration").to_pylist() == [sample.known_duration for sample in speech]
    assert table.column("text").to_pylist() == [sample.text for sample in speech]


def test_columns_of_tables_come_back_as_they_were(table):
    expected = [{"caption": f"picture {i}", "label": i % 2, "vector": [i / 2] * 3} for i in range(30)]
    found = table.to_arrow()
    assert found.column_names == [*FEATURES] == table.columns
    assert [{name: row[name] for name in expected[0]} for row in found.to_pylist()] == expected
    assert [row["bytes"] for row in found.column("image").to_pylist()] == [sample["png"] for sample in table]
    chosen = table.shuffle(3).where("label == 1")
    frame = chosen.to_pandas(columns=["vector", "caption"])
    assert [*frame] == ["vector", "caption"]
    assert frame["caption"].tolist() == [sample.json()["caption"] for sample in chosen]
    assert table[[20, 3, 20]].to_arrow(["label"]).to_pylist() == [{"label": 0}, {"label": 1}, {"label": 0}]
    with pytest.raises(UsageError, match="no table has a column 'key': there are caption, label, image, vector"):
        table.to_arrow(["key"])


@pytest.mark.parametrize("name", ["one.parquet", "shards"])
def test_parquet_has_columns_and_files(pictures, tmp_path, name):
    chosen = pictures.where("width > 2").shuffle(1)
    samples = [*chosen]
    assert chosen.to_parquet(tmp_path / name) == 7
    files = [tmp_path / name] if name == "one.parquet" else [*(tmp_path / name).glob("*.parquet")]
    rows = pq.read_table(files[0]).to_pylist()
    assert [row["jpg"] for row in rows] == [sample["jpg"] for sample in samples]
    again = touchfs.open(tmp_path / name)
    assert [(sample.key, sample["jpg"]) for sample in again] == [(sample.key, sample["jpg"]) for sample in samples]
    with pytest.raises(UsageError, match="already exists: remove it"):
        chosen.to_parquet(tmp_path / name)


def test_a_field_with_the_name_of_a_file_hides_no_file(tmp_path):
    with TarWriter(tmp_path / "x.tar") as tar:
        tar.add("a", {"wav": b"sound", "json": b'{"wav": "a.wav"}'})
    samples = touchfs.open(tmp_path / "x.tar")
    samples.to_parquet(tmp_path / "x.parquet")
    row = pq.read_table(tmp_path / "x.parquet").to_pylist()[0]
    assert (row["wav"], row[".wav"]) == ("a.wav", b"sound")


def test_parquet_of_tables_is_for_datasets(table, tmp_path):
    chosen = table.where("label == 1")
    chosen.to_parquet(tmp_path / "x.parquet", columns=["image", "label"])
    described = pq.read_schema(tmp_path / "x.parquet").metadata or {}
    found = datasets.load_dataset("parquet", data_files=str(tmp_path / "x.parquet"), cache_dir=tmp_path / "hf")["train"]
    assert [*found.features] == ["image", "label"]
    if b"huggingface" in described:  # a Lance dataset has lost what its columns are
        assert found.features == datasets.Features({name: FEATURES[name] for name in ("image", "label")})
        assert [np.asarray(row["image"])[0, 0, 0] for row in found] == [*range(1, 30, 2)]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_tars_are_read_by_webdataset(pictures, tmp_path):
    """It leaves files open."""
    chosen = pictures.where("width > 2").shuffle(1)
    samples = [*chosen]
    assert chosen.to_webdataset(tmp_path / "tars", samples_per_shard=3) == 7
    tars = sorted(tmp_path.glob("tars/*.tar"))
    assert [tar.name for tar in tars] == ["000000.tar", "000001.tar", "000002.tar"]
    found = [*webdataset.WebDataset([*map(str, tars)], shardshuffle=False)]
    assert [(sample["__key__"], sample["jpg"]) for sample in found] == [(each.key, each["jpg"]) for each in samples]
    with pytest.raises(UsageError, match="already exists"):
        chosen.to_webdataset(tmp_path / "tars")
    with pytest.raises(UsageError, match=r"is in .*pictures, which is read"):
        chosen.to_webdataset(Path(pictures.data.samples.dataset.source, "tars"))
    with pytest.raises(TypeError, match="before map"):
        chosen.map(len).to_webdataset(tmp_path / "others")


def test_segments_have_names_of_their_own(speech, tmp_path):
    segments = speech.segments()
    segments.to_webdataset(tmp_path / "tars")
    found = touchfs.open(tmp_path / "tars")
    assert [sample.key for sample in found] == [f"{sample.key}/{sample.number:04d}" for sample in segments]
    assert found.read("wav", range(len(found))) == [sample["wav"] for sample in segments]


def test_what_a_set_says_of_itself(pictures, table, tmp_path):
    expected = "Dataset(10 samples, 2 shards, files: cls jpg json, fields: width score mixed tags nothing late)"
    assert repr(pictures) == expected
    assert repr(pictures.take(3)).startswith("Dataset(3 of 10 samples, 2 shards, files: ")
    assert pictures.columns == ["key", "shard", "cls", "width", "score", "mixed", "tags", "nothing", "late"]
    assert pictures.features["cls"] == "int64"
    assert table.extensions == ["json", "png"]
    assert pictures.info()["samples"] == 10
    assert table.info()["columns"] == table.features
    with touchfs.open(pictures.data.samples.dataset.source) as opened:
        assert opened[0]["cls"] == b"0\n"
    assert opened[0]["cls"] == b"0\n", "it opens its files again"
    assert isinstance(pictures.to_arrow(), pa.Table)


def test_a_line_about_a_set_decompresses_nothing(pictures, tmp_path):
    source = Path(pictures.data.samples.dataset.source, "0.tar")
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(source.read_bytes()))
    samples = touchfs.open(tmp_path / "x.tar.gz")
    assert repr(samples) == "Dataset(5 samples, 1 shard, files: cls jpg json)"
    assert "width" in samples.columns
