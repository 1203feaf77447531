"""A small file with one huge value: as few copies of it as can be are in memory, and all of them count."""

import os
import subprocess

import pyarrow
import pyarrow.parquet
import pytest
from command import INSTALLED
from memory import peak

MB = 1 << 20
# A value, and a limit that allows one copy of it and not two.
SIZE, LIMIT = 64 * MB, 100 * MB
# What a command needs besides, in MB: pyarrow and its readers.
OWN = 110

# Values are made when they are needed: what modules of tests hold costs each fork of a process that has collected them.
BINARY, TEXT, LIST, STRUCT = (
    (lambda: b"a" * SIZE, pyarrow.binary()),
    (lambda: "a" * SIZE, pyarrow.string()),
    (lambda: [b"a" * SIZE], pyarrow.list_(pyarrow.binary())),
    (lambda: {"x": b"a" * SIZE}, pyarrow.struct([("x", pyarrow.binary())])),
)
PLAIN = {"use_dictionary": False}
# The value, options of the writer, and whether it can be read within the limit.
PARQUET = {
    "zstd": (BINARY, PLAIN, True),
    "dictionary": (BINARY, {}, True),
    "version 2, checksum": (BINARY, PLAIN | {"data_page_version": "2.0", "write_page_checksum": True}, True),
    "lengths apart": (BINARY, PLAIN | {"column_encoding": "DELTA_LENGTH_BYTE_ARRAY"}, False),
    "none": (BINARY, PLAIN | {"compression": "none"}, True),
    "brotli": (BINARY, PLAIN | {"compression": "brotli"}, True),
    "text": (TEXT, PLAIN, False),
    "list": (LIST, PLAIN, False),
    "struct": (STRUCT, PLAIN, False),
}
VARIANTS = ("version 2, checksum", "lengths apart", "none", "brotli", "struct")


def check(place, data, path, fits):
    """A file of a dataset is read within the limit, or the error names that."""
    arguments = [f"{data}:{path}", "--max-decoded", str(LIMIT)]
    environment = os.environ | {f"XDG_{each}_HOME": str(place / each) for each in ("CACHE", "STATE")}
    with open(place / "out", "wb") as out:
        done, most = peak(
            place,
            INSTALLED,
            "cat",
            *arguments,
            env=environment,
            stdout=out,
            stderr=subprocess.PIPE,
            capture_output=False,
        )
    assert most < OWN + LIMIT // MB, done.stderr
    if fits:
        assert (done.returncode, done.stderr, (place / "out").stat().st_size) == (0, b"", SIZE)
    else:
        assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
        assert b"--max-decoded raises the limit" in done.stderr


@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=pytest.mark.variant if each in VARIANTS else ()) for each in PARQUET]
)
def test_a_cell_of_parquet(tmp_path, kind):
    (make, type_), options, fits = PARQUET[kind]
    table = pyarrow.table({"id": ["a"], "x": pyarrow.array([make()], type_)})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet", **{"compression": "zstd"} | options)
    path = {TEXT[1]: "a.json", STRUCT[1]: "a.json", LIST[1]: "a/x.0.bin"}.get(type_, "a.bin")
    check(tmp_path, tmp_path / "t.parquet", f"shards/t/{path}", fits)


@pytest.mark.parametrize("kind", [BINARY, pytest.param(TEXT, marks=pytest.mark.variant)], ids=["binary", "text"])
def test_a_cell_of_arrow(tmp_path, kind):
    table = pyarrow.table({"id": ["a"], "x": pyarrow.array([kind[0]()], kind[1])})
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with pyarrow.ipc.new_file(tmp_path / "t.arrow", table.schema, options=options) as writer:
        writer.write_table(table)
    check(tmp_path, tmp_path / "t.arrow", f"shards/t/a.{'json' if kind is TEXT else 'bin'}", kind is BINARY)
