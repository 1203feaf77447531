"""Parquet files become tables of any kind with the same rows, and any table becomes Parquet files, or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_tables import pictures, write_arrow, write_cache
from parquet_tables import WAYS, everything, write_parquet

from touchfs.bulk.tables.job import pack_table
from touchfs.bulk.tables.writers import TableSettings
from touchfs.catalog.catalog import Catalog
from touchfs.core.errors import FormatError
from touchfs.indexing import open_dataset
from touchfs.limits import LIMITS
from touchfs.source.data import DATA
from touchfs.tables.parquet.open_file import open_parquet


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["arrow", "lance", "parquet"])
def test_parquet_becomes_any_table(tmp_path: Path, way: str, kind: str) -> None:
    table = everything(40).drop_columns(["nothing", "map"])
    source = write_parquet(tmp_path / "in.parquet", table, way, 15)
    out = tmp_path / "out"
    assert pack_table(str(source), str(out), TableSettings(kind)).rows == 40
    if kind == "parquet":
        found = pq.read_table(out / "shard-00000.parquet")
    elif kind == "lance":
        found = lance.dataset(str(out)).to_table()
    else:
        found = pa.ipc.open_file(out / "shard-00000.arrow").read_all()
    assert found.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("settings", [{}, {"compression": "lz4"}, {"shard_size": 4000.0, "batch_size": 10}])
def test_an_arrow_file_is_copied_with_its_types(tmp_path: Path, settings: dict[str, Any]) -> None:
    source = write_arrow(tmp_path / "in.arrow", everything(100), rows=30)
    pack_table(str(source), str(tmp_path / "out"), TableSettings("parquet", **settings))
    files = sorted((tmp_path / "out").iterdir())
    assert pa.concat_tables(map(pq.read_table, files)).equals(everything(100))
    assert (len(files) > 1) == ("shard_size" in settings)
    group = pq.read_metadata(files[0]).row_group(0)
    assert group.num_rows == settings.get("batch_size", 30)
    assert group.column(0).compression == "UNCOMPRESSED" and not group.column(0).has_dictionary_page
    assert group.column(1).compression == settings.get("compression", "zstd").upper()
    pack_table(str(tmp_path / "out"), str(tmp_path / "again"), TableSettings("arrow"))
    again = [pa.ipc.open_file(path).read_all() for path in sorted((tmp_path / "again").glob("*.arrow"))]
    assert pa.concat_tables(again).equals(everything(100))


def test_labels_of_a_cache_come_along(tmp_path: Path) -> None:
    features = {"label": {"type": "ClassLabel", "names": ["cat", "dog", "cow"]}}
    cache = write_cache(tmp_path / "cache", [pictures()], features=features)
    for source, kind in ((cache, "parquet"), (tmp_path / "parquet", "arrow")):
        pack_table(str(source), str(tmp_path / kind), TableSettings(kind))
        (shard,) = open_dataset(str(tmp_path / kind)).shards
        labels = Catalog(shard.catalog).facts.labels
        assert labels is not None and labels.names == ("cat", "dog", "cow")


def test_a_table_without_rows_keeps_its_columns(tmp_path: Path) -> None:
    source = write_arrow(tmp_path / "in.arrow", pictures().slice(0, 0))
    for place in ("out", "again"):
        pack_table(str(source), str(tmp_path / place), TableSettings("parquet"))
        source = tmp_path / place
        assert pq.read_table(source / "shard-00000.parquet").equals(pictures().slice(0, 0))


def test_files_with_other_columns_are_not_mixed(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in" / "a.parquet", pictures())
    write_parquet(tmp_path / "in" / "b.parquet", pa.table({"other": [1]}))
    with pytest.raises(FormatError, match="its columns are not those of"):
        pack_table(str(tmp_path / "in"), str(tmp_path / "out"), TableSettings("parquet"))
    assert not (tmp_path / "out").exists()


def test_each_payload_is_a_range_of_the_file(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in.parquet", everything(40), "snappy", 15)
    pack_table(str(source), str(tmp_path / "out"), TableSettings("parquet", batch_size=20))
    path = tmp_path / "out" / "shard-00000.parquet"
    table = open_parquet(DATA.open(str(path)), LIMITS)
    data, cells = path.read_bytes(), []
    for batch in range(2):
        ranges = table.cell_ranges((0,), batch)
        assert ranges is not None and table.nulls((0,), batch) == 3
        places = zip(ranges.offsets.tolist(), ranges.lengths.tolist(), ranges.valid.tolist(), strict=True)
        cells += [data[offset : offset + length] if valid else None for offset, length, valid in places]
    assert cells == everything(40)["image"].to_pylist()


def test_a_damaged_file_leaves_nothing_behind(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in" / "x.parquet", everything(40), "zstd", 15)
    data = bytearray(source.read_bytes())
    chunk = pq.read_metadata(source).row_group(2).column(1)
    start = chunk.dictionary_page_offset + 20
    data[start : start + chunk.total_compressed_size - 20] = bytes(chunk.total_compressed_size - 20)
    source.write_bytes(data)
    with pytest.raises(FormatError):
        pack_table(str(source), str(tmp_path / "out"), TableSettings("parquet"))
    assert sorted(os.listdir(tmp_path)) == ["in"]


def test_a_killed_copy_leaves_no_output(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in" / "x.parquet", everything(300), "plain", 50)
    code = """if True:
        import os, signal, sys
        from touchfs.bulk.tables.job import pack_table
        from touchfs.bulk.tables.writers import TableSettings
        def end(done, total):
            if done: os.kill(os.getpid(), signal.SIGKILL)
        pack_table(sys.argv[1], sys.argv[2], TableSettings("parquet", batch_size=10), progress=end)
    """
    killed = subprocess.run([sys.executable, "-c", code, source, tmp_path / "out"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    pack_table(str(source), str(tmp_path / "out"), TableSettings("parquet"))
    assert pq.read_table(tmp_path / "out").equals(everything(300))
    assert sorted(os.listdir(tmp_path)) == ["in", "out", "out.lock"]
