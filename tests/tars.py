"""Tars of given members."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from touchfs.containers.tar.layout.header import build_header


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    """Write a tar, and the directories above it. A name that ends with .gz is compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, data in members.items():
            add(tar, name, data)
    return path


def write_samples(path: Path, samples: Mapping[str, Mapping[str, bytes]]) -> Path:
    """Write a tar of files by key and extension."""
    return write_tar(path, {f"{key}.{end}": data for key, files in samples.items() for end, data in files.items()})


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """The bytes of a tar."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in members.items():
            add(tar, name, data)
    return file.getvalue()


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a member to a tar that is being written."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


class Endless(bytes):
    """A tar of a petabyte: empty files, one after the other."""

    def __len__(self) -> int:
        return 1 << 50

    def __getitem__(self, part: Any) -> Any:
        start, stop, _ = part.indices(len(self))
        block = build_header("x.txt", 0)
        first = start % len(block)
        return (block * ((stop - start) // len(block) + 2))[first : first + stop - start]
