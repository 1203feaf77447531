"""Rows of tables as samples of TouchNet's shards and of Shar: compressed or not, with one column of files or more."""

import io
import json
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
from touchfs.core.errors import FormatError

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


def with_pictures(table: pa.Table) -> pa.Table:
    return table.append_column("picture", pa.array([b"\x89PNG\r\n\x1a\n" + bytes(9)] * len(table)))


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


@pytest.mark.parametrize("target", TARGETS)
def test_the_recording_of_a_row_with_other_files(tmp_path: Path, target: Target) -> None:
    plain = converted(write(tmp_path / "plain.arrow", speech()), target)
    path = write(tmp_path / "pictures.arrow", with_pictures(speech()))
    with pytest.raises(FormatError, match=r"--leave-out picture\.png"):
        convert(str(path), str(tmp_path / "refused"), target)
    assert converted(path, target, leave_out=["picture.png"]) == plain


def test_two_recordings_have_their_names(tmp_path: Path) -> None:
    table = speech().append_column("other", pa.array([recording(5)] * ROWS))
    path = write(tmp_path / "two.arrow", table)
    with pytest.raises(FormatError, match=r"TouchNet cannot store sound\.wav: leave it out"):
        convert(str(path), str(tmp_path / "refused"), TouchTarget())
    found = converted(path, TouchTarget(), leave_out=["other.wav"])
    first = json.loads(found["000000000/metainfo.bin"].split(b"}", 1)[0] + b"}")
    assert (first["key"], first["sample_rate"], first["number"]) == ("k0", 16000, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_subtitles_of_rows(tmp_path: Path, target: Target) -> None:
    """All of them together have more bytes than a compressed table; lengths of recordings are read."""
    srt = b"1\n00:00:00,000 --> 00:00:00,005\n" + b"again " * 2000 + b"\n"
    texts = pa.array([{"bytes": srt, "path": "x.srt"}] * ROWS)
    table = speech().drop_columns(["text"]).append_column("texts", texts)
    plain = converted(write(tmp_path / "plain.arrow", table), target)
    assert b"again again" in b"".join(plain.values())
    for name in ("zstd.arrow", "a.parquet", "a.lance"):
        (tmp_path / name).mkdir()
        assert converted(write(tmp_path / name / name, table), target) == plain, name
