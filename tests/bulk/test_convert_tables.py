"""Rows of tables as samples of TouchNet's shards and of Shar: compressed or not."""

import io
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from make_data import tree

from touchfs.bulk.convert.job import ConvertReport, convert
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.target import Target
from touchfs.bulk.convert.touchnet import TouchTarget

ROWS = 40
TARGETS: list[Target] = [TouchTarget(), SharTarget()]


def recording(number: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.full(100 + number, number, np.int16), 16000, format="WAV")
    return file.getvalue()


def speech() -> pa.Table:
    """Recordings and texts that compress well: all JSON is larger than a compressed table."""
    rows = [{"id": f"k{n}", "sound": recording(n), "text": "again " * 500, "number": n} for n in range(ROWS)]
    return pa.Table.from_pylist(rows)


def write(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, compression="zstd")
    elif path.suffix == ".lance":
        lance.write_dataset(table, path)
    else:
        coding = pa.ipc.IpcWriteOptions(compression="zstd" if path.stem == "zstd" else None)
        with pa.ipc.new_file(path, table.schema, options=coding) as writer:
            writer.write_table(table)
    return path


def converted(path: Path, target: Target, **options: Any) -> dict[str, bytes]:
    """What a conversion writes, always into a directory of the same name."""
    output = path.with_name("out")
    assert convert(str(path), str(output), target, **options) == ConvertReport(1, ROWS, 0)
    found = tree(output)
    output.rename(path.with_suffix(f".{target.kind}"))
    return {name: data for name, data in found.items() if name != "data.list"}


@pytest.mark.parametrize("target", TARGETS)
def test_tables_of_any_kind(tmp_path: Path, target: Target) -> None:
    plain = converted(write(tmp_path / "plain.arrow", speech()), target)
    assert b"again again" in b"".join(plain.values())
    for name in ("zstd.arrow", "a.parquet", "a.lance"):
        (tmp_path / name).mkdir()
        assert converted(write(tmp_path / name / name, speech()), target) == plain, name
