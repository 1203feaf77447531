"""Mounts of shards in a ZIP archive and of one with samples: workers find them again; others are new versions."""

import errno
import os
import signal
import zipfile
from pathlib import Path

import pytest
from mounts import touchfs
from range_server import range_server
from tars import write_tar


def write_zip(place: Path, text: bytes) -> bytes:
    """An archive with two shards, of which one is compressed."""
    with zipfile.ZipFile(place / "all.zip", "w") as archive:
        for name, method in (("stored", zipfile.ZIP_STORED), ("packed", zipfile.ZIP_DEFLATED)):
            archive.write(
                write_tar(place / f"{name}.tar", {f"{name}.txt": text, "new.txt": text}), f"train/{name}.tar", method
            )
    return (place / "all.zip").read_bytes()


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
def test_shards_in_an_archive(mount, tmp_path, monkeypatch, is_remote):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    data = write_zip(tmp_path, b"one")
    with range_server() as server:
        archive = server.put("/all.zip", data) if is_remote else tmp_path / "all.zip"
        mounted = mount(f"zip://train::{archive}", "--revalidate", 0)
        files = [mounted.path / "shards" / name / f"{name}.txt" for name in ("stored", "packed")]
        for _ in range(2):
            assert [file.read_bytes() for file in files] == [b"one", b"one"]
            for worker in mounted.workers():
                os.kill(worker, signal.SIGKILL)
        (tmp_path / "new").mkdir()
        server.put("/all.zip", write_zip(tmp_path / "new", b"two, which is longer"))
        os.replace(tmp_path / "new" / "all.zip", tmp_path / "all.zip")
        for file in files:
            assert file.read_bytes() == b"one"  # the kernel has kept it
            with pytest.raises(OSError) as caught:
                file.with_name("new.txt").read_bytes()
            assert caught.value.errno == errno.ESTALE
        assert touchfs("reload", mounted.path).returncode == 0
        assert [file.read_bytes() for file in files] == [b"two, which is longer"] * 2


def test_samples_in_an_archive(mount, tmp_path, monkeypatch):
    """Those that the archive stores, and those that it has compressed, in memory and in the scratch store."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    data = {"0001.txt": b"one", "0001.json": b"{}", "0002.txt": b"two" * 999, "0002.bin": bytes(5_000_000)}
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, text in data.items():
            archive.writestr(name, text, zipfile.ZIP_DEFLATED if name[:4] == "0002" else zipfile.ZIP_STORED)
    mounted = mount(tmp_path / "all.zip", "--revalidate", 0)
    for _ in range(2):
        place = mounted.path / "shards" / "all"
        assert {file.name: file.read_bytes() for file in place.iterdir()} == data
        for worker in mounted.workers():
            os.kill(worker, signal.SIGKILL)
