"""Shards that are overwritten in place and keep their sizes and mtimes, as by `cp -p` or `rsync --inplace --times`."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tars import write_tar
from touchnet import write_speech

SIZE = 400_000


def _tar(path: Path, data: list[bytes]) -> None:
    write_tar(path / "a.tar", {f"k{number}.bin": each for number, each in enumerate(data)})


def _parquet(path: Path, data: list[bytes]) -> None:
    table = pa.table({"key": [f"k{number}" for number in range(len(data))], "bin": data})
    pq.write_table(table, path / "a.parquet", compression="none", use_dictionary=False, write_statistics=False)


def _touchnet(path: Path, data: list[bytes]) -> None:
    write_speech(path / "a", [({"key": f"k{number}", "sample_rate": 8000}, each) for number, each in enumerate(data)])


KINDS: dict[str, Callable[[Path, list[bytes]], None]] = {"tar": _tar, "parquet": _parquet, "touchnet": _touchnet}


def data_of(version: int) -> list[bytes]:
    """The bytes of two samples, which no other version has."""
    dice = random.Random(version)
    return [dice.randbytes(SIZE) for _ in range(2)]


def write_version(kind: str, path: Path, version: int) -> list[Path]:
    """Write a dataset of one shard, over the files that are there, and leave their times. Returns its files."""
    built = path.with_name(f"version {version}")
    built.mkdir()
    path.mkdir(exist_ok=True)
    KINDS[kind](built, data_of(version))
    files = []
    for file in (each for each in sorted(built.rglob("*")) if each.is_file()):
        target = path / file.relative_to(built)
        target.parent.mkdir(exist_ok=True)
        files.append(target)
        if not target.exists():
            file.rename(target)
            continue
        before = target.stat()
        assert file.stat().st_size == before.st_size
        with open(target, "r+b") as opened:
            opened.write(file.read_bytes())
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    return files
