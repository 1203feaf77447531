"""Tables of one column, and rows of nulls: each sample has a file, in the tree and in Python."""

import json

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_tables import JPG, PNG, write_arrow

import touchfs
from touchfs.features.file import EXTENSION_KEY
from touchfs.registry.open import open_shard

FORMATS = ("arrow", "parquet", "lance")
EMPTY = {"image": None}
AS_FILE = pa.field("image", pa.binary(), metadata={EXTENSION_KEY: "png"})
# A table, and the keys and files of its samples
CASES = {
    "one binary column": (pa.table({"image": [JPG, PNG]}), {"00000000": {"jpg": JPG}, "00000001": {"jpg": PNG}}),
    "some nulls": (pa.table({"image": [None, JPG]}), {"00000000": {"json": EMPTY}, "00000001": {"jpg": JPG}}),
    "only nulls": (pa.table({"image": pa.nulls(1, pa.binary())}), {"00000000": {"json": EMPTY}}),
    "only keys": (pa.table({"id": ["a", "b"]}), {"a": {"json": {"id": "a"}}, "b": {"json": {"id": "b"}}}),
    "files and keys": (
        pa.table([["a", "b"], [PNG, None]], pa.schema([pa.field("id", pa.string()), AS_FILE])),
        {"a": {"png": PNG}, "b": {"json": {"id": "b", "image": None}}},
    ),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", CASES)
def test_each_row_has_a_file(tmp_path, name, form):
    table, wanted = CASES[name]
    path = tmp_path / f"x.{form}"
    write = {"arrow": write_arrow, "parquet": lambda path, table: pq.write_table(table, path)}
    write.get(form, lambda path, table: lance.write_dataset(table, str(path)))(path, table)
    found = touchfs.open(path)
    shown = {
        sample.key: {ext: json.loads(data) if ext == "json" else data for ext, data in sample.items()}
        for sample in found
    }
    assert shown == wanted
    paths = [f"shards/x/{key}.{ext}".encode() for key, files in wanted.items() for ext in files]
    assert [sample.first_path() for sample in found] == paths


@pytest.mark.parametrize("form", FORMATS[:2])
def test_files_of_columns_of_one_name(tmp_path, form):
    """Also of one that has the name of rows."""
    table = pa.Table.from_arrays(
        [pa.array([JPG]), pa.array([PNG]), pa.array([b"1"]), pa.array([2])], [*"aa", "row", "n"]
    )
    path = tmp_path / f"x.{form}"
    (write_arrow if form == "arrow" else lambda path, table: pq.write_table(table, path))(path, table)
    (streamed,) = open_shard(str(path))
    assert {name: str(field.extension) for name, field in streamed.fields.items()} == {
        "a": "a.jpg",
        "a~2": "a~2.png",
        "row": "row~2.bin",
        "row~2": "row.json",
    }
    (sample,) = touchfs.open(path)
    assert dict(sample) == {"a.jpg": JPG, "a~2.png": PNG, "row~2.bin": b"1", "row.json": b'{"n": 2}\n'}
