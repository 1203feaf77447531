"""What indexing asks of Lance: which cells are null without reading the column, and files that it may not name."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from memory import peak

from touchfs.core.errors import FormatError
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.scan import NULL, LanceScan


def scan(path: Path, version: str) -> LanceScan:
    rows = {
        "full": pa.array([b"x" * i for i in range(20)], pa.large_binary()),
        "holes": pa.array([None if i in (3, 15) else b"y" * i for i in range(20)], pa.large_binary()),
        "pair": [{"bytes": b"z" * i, "path": "p"} for i in range(20)],
    }
    lance.write_dataset(pa.table(rows), path, data_storage_version=version, max_rows_per_file=10)
    return LanceScan(LanceTable(str(path)))


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_nulls_are_found_without_reading_columns_that_have_none(tmp_path: Path, version: str) -> None:
    found = scan(tmp_path / "x", version)
    holes = np.array([NULL if i in (3, 15) else i for i in range(20)])
    sizes = found.sizes((1,), 2, 15)
    assert sizes is not None and sizes.tolist() == holes[2:17].tolist()
    for path in ((0,), (2, 0)):
        sizes = found.sizes(path, 0, 20)
        assert (sizes is None) if version != "2.0" else (sizes is not None and sizes.tolist() == list(range(20)))
    assert found.heads((2, 0), 5, 2).heads == [b"zzzzz", b"zzzzzz"]


def test_a_shallow_clone_is_not_read(tmp_path: Path) -> None:
    scan(tmp_path / "x", "2.2").describe()
    dataset: Any = lance.dataset(tmp_path / "x")
    dataset.tags.create("t", 1)
    dataset.shallow_clone(str(tmp_path / "clone"), "t")
    with pytest.raises(FormatError, match="shallow clone"):
        LanceScan(LanceTable(str(tmp_path / "clone"))).describe()


@pytest.mark.soak
def test_large_cells_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """Two thousand cells of 500 kB, which compress well: all at once they take 1 GB."""
    large = bytes(range(250)) * 2000
    schema = pa.schema([("image", pa.large_binary())])
    batch = pa.record_batch([pa.array([None if i == 7 else large for i in range(100)], pa.large_binary())], schema)
    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, [batch] * 20), tmp_path / "x.lance")
    code = "import sys; from touchfs.tables.lance.dataset import LanceTable; from touchfs.tables.lance.scan import *; "
    code += "h = LanceScan(LanceTable(sys.argv[1])).heads((0,), 50, 1900); "
    code += "print(h.size.tolist().count(NULL), h.size.sum(), len(h.heads))"
    done, megabytes = peak(tmp_path, sys.executable, "-c", code, tmp_path / "x.lance")
    assert done.stdout.split() == [b"19", str(1881 * len(large) - 19).encode(), b"1900"]
    assert megabytes < 600


def test_without_lance_indexing_says_what_is_missing(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"n": [1]}), tmp_path / "x.lance")
    for name in ("lance", "pyarrow"):
        (tmp_path / f"{name}.py").write_text("raise ImportError(__name__)")
    code = "import sys; from touchfs.tables.lance.apart import *; LanceApart(LanceTable(sys.argv[1])).call('describe')"
    place = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.lance")],
        env=os.environ | {"PYTHONPATH": place},
        capture_output=True,
        timeout=60,
    )
    assert b"MissingExtraError: Lance datasets need pylance" in done.stderr
