"""Tars of given members."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    """Write a tar, and the directories above it. A name that ends with .gz is compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path
