"""Files that claim more than they have: each is an error in one line or has right data, in little memory."""

import gzip
import io
import json
import lzma
import os
import struct
import subprocess
import sys
import tarfile
import zlib
from functools import cache
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from tars import write_tar

from touchfs.format.wav import build_header
from touchfs.tables.parquet.layout.thrift import build_integer

# More than any command needs for a small file, in MB.
MOST = 300


def tar_of(header, data=b"abc"):
    """A tar of one member with these PAX headers."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("a.bin")
        member.size, member.pax_headers = len(data), {name: str(value) for name, value in header.items()}
        tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def with_size(size, kind=b"0"):
    """A tar whose header states a size in 12 bytes."""
    block = bytearray(tar_of({}))
    block[124:136], block[156:157], block[148:156] = size, kind, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return bytes(block)


def sparse_map(entries, size=2**60):
    names = {"GNU.sparse.major": 1, "GNU.sparse.minor": 0, "GNU.sparse.name": "a.bin", "GNU.sparse.realsize": size}
    return tar_of(names, (b"%d\n0\n3\n" % entries).ljust(512, b"\0") + b"abc")


def pair(count, documents, size=None, data=100):
    """An index of Megatron and its .bin, of which only the sizes may be there."""

    def write(path):
        path.write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, documents))
        path.with_suffix(".bin").write_bytes(b"")
        os.truncate(path.with_suffix(".bin"), data)
        os.truncate(path, 34 + 12 * count + 8 * documents if size is None else size)

    return write


def members(**data):
    return lambda path: write_tar(path, {name.replace("_", "."): each for name, each in data.items()})


def npy(shape):
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode()


FLAC = (
    b"fLaC\x80\0\0\x22"
    + struct.pack(">HH", 4096, 4096)
    + bytes(6)
    + (16000 << 44 | 15 << 36 | 2**36 - 1).to_bytes(8, "big")
)
ZSTD = b"\x28\xb5\x2f\xfd"
TABLE = pyarrow.table({"id": ["a", "b"], "x": [b"abc" * 50] * 2, "l": [[1], [2, 3]]})


def parquet(change):
    """A Parquet file whose footer is changed."""
    made = io.BytesIO()
    pyarrow.parquet.write_table(TABLE, made, store_schema=False, write_statistics=False)
    data = made.getvalue()
    (size,) = struct.unpack("<I", data[-8:-4])
    footer = change(data[-8 - size : -8])
    return data[: -8 - size] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def rows_of_parquet(footer):
    """The number of rows of the file and of its row group."""
    return footer.replace(build_integer(2) + b"\x19", build_integer(2**61) + b"\x19").replace(
        b"\x16\x04", b"\x16" + build_integer(2**61)
    )


def arrow(at, number, compression=None):
    made = io.BytesIO()
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with pyarrow.ipc.new_file(made, TABLE.schema, options=options) as writer:
        writer.write_table(TABLE)
    data = made.getvalue()
    where = at(data)
    return data[:where] + struct.pack("<q", number) + data[where + 8 :]


# These are made by their tests: they take seconds and gigabytes, which each process that collects the tests would have.
@cache
def zeros():
    return gzip.compress(bytes(100 << 20), 1)


def with_xz_dictionary():
    """Of 1.5 GB, as the header of the block says: to compress with it would take as much."""
    data = bytearray(lzma.compress(b"{}\n"))
    data[16] = 37
    data[20:24] = struct.pack("<I", zlib.crc32(data[12:20]))
    return bytes(data)


CLAIMS = {
    "wav": ("a.tar", members(a_wav=build_header(2**32 - 37, 8000) + bytes(100))),
    "flac": ("a.tar", members(a_flac=FLAC + bytes(116))),
    "npy": ("a.tar", members(a_npy=npy((2**40, 2**40)))),
    "tar size": ("a.tar", with_size(b"77777777777\0")),
    "tar size in base 256": ("a.tar", with_size(b"\x80" + (2**80).to_bytes(11, "big"))),
    "tar name": ("a.tar", with_size(b"77777777777\0", b"L")),
    "tar pax header": ("a.tar", with_size(b"77777777777\0", b"x")),
    "pax size": ("a.tar", tar_of({"size": 10**18})),
    "pax size of 30 digits": ("a.tar", tar_of({"size": 10**30})),
    "sparse size": ("a.tar", sparse_map(1)),
    "sparse map": ("a.tar", sparse_map(10**12)),
    "json nesting": ("a.jsonl", b'{"id":"a","x":' + b"[" * 10**5 + b"]" * 10**5 + b"}\n"),
    "json digits": ("a.jsonl", b'{"id":"a","x":' + b"9" * 10**6 + b"}\n"),
    "json times": ("a.jsonl", b'{"id":"a","duration":1e308,"segments":[{"start":0,"end":1e308,"text":"a"}]}\n'),
    "gzip line": ("a.jsonl.gz", lambda path: path.write_bytes(zeros())),
    "gzip member": ("a.tar", lambda path: members(a_json_gz=zeros())(path)),
    "xz dictionary": ("a.jsonl.xz", with_xz_dictionary()),
    "zstd size": ("a.jsonl.zst", ZSTD + b"\xe0" + struct.pack("<Q", 2**60) + bytes(20)),
    "zstd window": ("a.jsonl.zst", ZSTD + b"\0\xf8\1\0\0"),
    "index samples": ("a.idx", pair(2**60, 1, 64)),
    "index documents": ("a.idx", pair(1, 2**62, 64)),
    "index with holes": ("a.idx", pair(2**33, 1)),
    "index and data with holes": ("a.idx", pair(2**36, 2**36 + 1, data=2**42)),
    "documents with holes": ("a.idx", pair(1, 2**36)),
    "parquet footer": ("a.parquet", b"PAR1" + bytes(100) + struct.pack("<I", 2**32 - 1) + b"PAR1"),
    "parquet rows": ("a.parquet", parquet(rows_of_parquet)),
    "parquet list": (
        "a.parquet",
        parquet(lambda footer: footer.replace(b"\x19\x6c", b"\x19\xfc" + b"\xff" * 4 + b"\7", 1)),
    ),
    "arrow footer": ("a.arrow", arrow(lambda data: len(data) - 10, 2**62)),
    "arrow message": ("a.arrow", arrow(lambda data: 12, 2**31 - 1)),
    "arrow buffer": ("a.arrow", arrow(lambda data: data.index(struct.pack("<q", 300)), 2**60)),
    "arrow decompressed": ("a.arrow", arrow(lambda data: data.index(struct.pack("<q", 300)), 2**40, "zstd")),
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A process that opens one dataset after the other: see `claims.py`."""
    place = tmp_path_factory.mktemp("claims")
    environment = os.environ | {f"XDG_{each}_HOME": str(place / each) for each in ("CACHE", "STATE")}
    program = Path(__file__).parents[1] / "claims.py"
    with subprocess.Popen(
        [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        process.stdin.close()


@pytest.mark.parametrize("kind", CLAIMS)
def test_claims(reader, tmp_path, kind):
    name, data = CLAIMS[kind]
    if callable(data):
        data(tmp_path / name)
    else:
        (tmp_path / name).write_bytes(data)
    print(tmp_path / name, file=reader.stdin, flush=True)
    _, peak, _, said = json.loads(reader.stdout.readline() or "[0, 0, 0, 'the process has ended']")
    assert "sample" in said or "cannot be served" in said
    assert "\n" not in said
    assert peak < MOST
