"""Delta tables that the Rust implementation wrote: the same files, whatever happened to the table."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from touchfs.core.errors import FormatError
from touchfs.indexing import open_dataset
from touchfs.registry.find import find_shards


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "part": [f"{each[0]} %/?" for each in ids]})


def check(table: Path) -> None:
    delta = deltalake.DeltaTable(table)
    found = find_shards(str(table))
    assert len(found) == len(set(found)) == len(delta.file_uris())
    assert open_dataset(str(table), in_memory=True).samples == delta.count()


@pytest.mark.parametrize("partitions", [[], ["part"]])
def test_the_present_version(tmp_path: Path, partitions: list[str]) -> None:
    table = tmp_path / "table with spaces"
    deltalake.write_deltalake(table, rows("a", "b"), partition_by=partitions)
    check(table)
    for number in range(3):
        deltalake.write_deltalake(table, rows(f"c{number}", f"d{number}"), mode="append")
    check(table)
    delta = deltalake.DeltaTable(table)
    delta.delete("id = 'a'")
    check(table)
    delta.create_checkpoint()
    check(table)
    delta.optimize.compact()
    check(table)
    deltalake.write_deltalake(table, rows("e"), mode="overwrite")
    check(table)
    delta = deltalake.DeltaTable(table)
    delta.create_checkpoint()
    delta.restore(2)
    check(table)
    delta.delete()
    check(table)


def test_a_feature_that_is_used(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, rows("a"), configuration={"delta.enableChangeDataFeed": "true"})
    check(tmp_path)
    deltalake.DeltaTable(tmp_path).alter.add_feature(deltalake.TableFeatures.V2Checkpoint, True)
    with pytest.raises(FormatError, match="the reader feature v2Checkpoint"):
        find_shards(str(tmp_path))
