"""Delta tables: the files of their present version, by a log that is built here."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from touchfs.core.errors import FormatError
from touchfs.core.location import Location
from touchfs.indexing import open_dataset
from touchfs.registry.find import find, find_shards

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
ADD = {"partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}


def add(path: str, **facts: Any) -> dict[str, Any]:
    return {"add": {"path": path, **ADD, **facts}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True}}


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    (table / "_delta_log").mkdir(parents=True, exist_ok=True)
    (table / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")


def checkpoint(table: Path, version: int, *paths: str, part: str = "") -> None:
    schema = pa.schema(
        {
            "protocol": pa.struct({"minReaderVersion": pa.int32(), "readerFeatures": pa.list_(pa.string())}),
            "metaData": pa.struct({"id": pa.string(), "configuration": pa.map_(pa.string(), pa.string())}),
            "add": pa.struct({"path": pa.string(), "stats": pa.string()}),
            "remove": pa.struct({"path": pa.string()}),
        }
    )
    rows = [{"protocol": {"minReaderVersion": 1}}, {"metaData": {"id": "0", "configuration": []}}]
    rows += [{"add": {"path": path}} for path in paths] + [{"remove": {"path": "gone.parquet"}}]
    (table / "_delta_log").mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.Table.from_pylist(rows, schema), table / "_delta_log" / f"{version:020d}.checkpoint{part}.parquet"
    )


def names(table: Path) -> list[str]:
    return [str(Path(path).relative_to(table)) for path in find_shards(str(table))]


def test_the_present_version(tmp_path: Path) -> None:
    tmp_path = tmp_path / "table"
    for name in ("old", "new", "d=1%3A/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [name]}), tmp_path / f"{name}.parquet")
    commit(tmp_path, 0, PROTOCOL, add("old.parquet"))
    assert names(tmp_path) == ["old.parquet"]
    commit(tmp_path, 1, remove("old.parquet"), add("new.parquet"), add("d=1%253A/x.parquet"))
    assert names(tmp_path) == ["d=1%3A/x.parquet", "new.parquet"]
    dataset = open_dataset(str(tmp_path), in_memory=True)
    assert dataset.samples == 2
    assert str(dataset.left_out) == "1 file left out: old.parquet (not in this version of the Delta table)"
    assert len(find(Location.of(tmp_path.parent)).shards) == 2, "below another directory"
    commit(tmp_path, 2, add("new.parquet"), remove("new.parquet"), remove("d=1%253A/x.parquet"))
    assert names(tmp_path) == ["new.parquet"], "added with other facts"
    commit(tmp_path, 3, remove("new.parquet"))
    assert open_dataset(str(tmp_path), in_memory=True).samples == 0


def test_checkpoints(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL, add("gone.parquet"))
    checkpoint(tmp_path, 3, "a.parquet", "b.parquet")
    assert names(tmp_path) == ["a.parquet", "b.parquet"], "of versions before it nothing is read"
    commit(tmp_path, 4, remove("a.parquet"), add("c.parquet"))
    assert names(tmp_path) == ["b.parquet", "c.parquet"]
    checkpoint(tmp_path, 5, "d.parquet", part=f".{1:010d}.{2:010d}")
    assert names(tmp_path) == ["b.parquet", "c.parquet"], "a part is missing"
    checkpoint(tmp_path, 5, "e.parquet", part=f".{2:010d}.{2:010d}")
    assert names(tmp_path) == ["d.parquet", "e.parquet"]


def test_absolute_paths(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL, add(str(tmp_path / "a.parquet")), add(f"file://{tmp_path}/b.parquet"))
    assert names(tmp_path) == ["a.parquet", "b.parquet"]


@pytest.mark.parametrize(
    ("actions", "told"),
    [
        ([{"protocol": {"minReaderVersion": 4}}], "reader version 4"),
        ([{"protocol": {"minReaderVersion": 3, "readerFeatures": ["variantType"]}}], "the reader feature variantType"),
        ([PROTOCOL, add("a.parquet", deletionVector={"storageType": "u"})], "with deletionVectors"),
        ([{"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}], "columnMapping by name"),
        ([add("../a.parquet")], "names '../a.parquet'"),
        ([add("%2e%2e/a.parquet")], "names '../a.parquet'"),
        ([add("/etc/a.parquet")], "names '/etc/a.parquet'"),
        ([add("file:///etc/a.parquet")], "not in the table"),
        ([add("s3://other/a.parquet")], "not in the table"),
        ([add("link/a.parquet")], "a link leads out"),
        ([{"add": {}}], "log is damaged"),
        ([{"add": 7}], "log is damaged"),
    ],
)
def test_what_is_refused(tmp_path: Path, actions: list[dict[str, Any]], told: str) -> None:
    table = tmp_path / "table"
    commit(table, 0, *actions)
    (table / "link").symlink_to("/etc")
    with pytest.raises(FormatError, match=told):
        find(Location.of(table))
    (tmp_path / "a.tar").write_bytes(b"")
    assert told in str(find(Location.of(tmp_path)).left_out)


def test_a_log_that_is_damaged(tmp_path: Path) -> None:
    commit(tmp_path, 2, PROTOCOL)
    with pytest.raises(FormatError, match="lacks versions"):
        find(Location.of(tmp_path))
    (tmp_path / "_delta_log" / f"{2:020d}.checkpoint.parquet").write_bytes(b"PAR1")
    with pytest.raises(FormatError, match="log is damaged: its checkpoint cannot be read"):
        find(Location.of(tmp_path))
    checkpoint(tmp_path, 3, "a.parquet")
    (tmp_path / "_delta_log" / f"{4:020d}.json").write_text("{")
    with pytest.raises(FormatError, match="log is damaged"):
        find(Location.of(tmp_path))
