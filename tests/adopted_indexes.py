"""Indexes of tars, as other tools write them."""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import soundfile
from tars import add


class Place(NamedTuple):
    """A file in a tar, as the tools list it."""

    name: str
    offset: int
    size: int


def places(path: Path) -> list[Place]:
    with tarfile.open(path) as tar:
        return [Place(member.name, member.offset_data, member.size) for member in tar if member.isreg()]


def key_of(name: str) -> str:
    directory, slash, base = name.rpartition("/")
    return directory + slash + base.partition(".")[0]


def write_wds2idx(path: Path, files: Iterable[Place], root: Path | None = None) -> None:
    """As DALI's `wds2idx`: a line for each run of files with one key, without hidden files."""
    samples: list[tuple[str, list[str]]] = []
    for name, offset, size in files:
        key = key_of(name)
        if not key or key.endswith("/"):
            continue
        if not samples or samples[-1][0] != key:
            samples.append((key, []))
        samples[-1][1].append(f"{name[len(key) + 1 :]} {offset} {size} {name}")
    lines = [" ".join(sample) for _, sample in samples]
    path.with_suffix(".idx").write_text("\n".join([f"v1.2 {len(lines)}", *lines, ""]))


def write_webshart(path: Path, files: Iterable[Place], root: Path | None = None, *, size_key: str = "length") -> None:
    """As webshart and hfutils, which calls a size `size`. Names are sorted, and have checksums."""
    listed = {name: {"offset": offset, size_key: size, "sha256": "0" * 64} for name, offset, size in sorted(files)}
    index = {"path": path.name, "filesize": path.stat().st_size, "hash": "1", "hash_lfs": "2", "files": listed}
    path.with_suffix(".json").write_text(json.dumps(index))


def write_energon(path: Path, files: Iterable[Place], root: Path | None = None) -> None:
    """As `energon prepare`: the tables of the dataset in `root`, without files that are in no sample."""
    meta = (root or path.parent) / ".nv-meta"
    meta.mkdir(exist_ok=True)
    name = str(path.relative_to(root or path.parent))
    (meta / ".info.json").write_text(json.dumps({"energon_version": "7.4.1", "shard_counts": {"0.tar": 3, name: 1}}))
    (meta / "index.sqlite").unlink(missing_ok=True)
    with closing(sqlite3.connect(meta / "index.sqlite")) as store, store:
        store.execute(
            "CREATE TABLE samples (tar_file_id INTEGER, sample_key TEXT NOT NULL UNIQUE, sample_index INTEGER, "
            "byte_offset INTEGER, byte_size INTEGER)"
        )
        store.execute(
            "CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, "
            "content_byte_offset INTEGER, content_byte_size INTEGER)"
        )
        numbers: dict[str, int] = {}
        for name, offset, size in files:
            key, base = key_of(name), name.rpartition("/")[2]
            if not base.partition(".")[0] or "." not in base:
                continue
            if key not in numbers:
                numbers[key] = len(numbers)
                store.execute("INSERT INTO samples VALUES (1, ?, ?, 0, 0)", (key, numbers[key]))
            part = name[len(key) + 1 :]
            store.execute("INSERT INTO sample_parts VALUES (1, ?, ?, ?, ?)", (numbers[key], part, offset, size))


class WriteIndex(Protocol):
    """Writes the index of the tar at `path`, of a dataset that begins in the directory `root`, by default the tar's."""

    def __call__(self, path: Path, files: Iterable[Place], root: Path | None = None) -> None: ...


TOOLS: dict[str, WriteIndex] = {
    "wds2idx": write_wds2idx,
    "webshart": write_webshart,
    "energon": write_energon,
}


def wav(samples: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(samples, "int16"), 16000, format="WAV", subtype="PCM_16")
    return file.getvalue()


def write(path: Path, files: dict[str, bytes], form: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as tar:
        for name, data in files.items():
            add(tar, name, data)
    return path
