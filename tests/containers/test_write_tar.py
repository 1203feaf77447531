"""Tars are those of Python's tarfile, to the byte; they appear whole, their indexes last."""

import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tars import tar_of

from touchfs.containers.tar.layout import members as tar
from touchfs.core.errors import FormatError, SourceError, UsageError
from touchfs.format.idx import offsets
from touchfs.source.local import LocalFile
from touchfs.write import TarShardsWriter, TarWriter

SAMPLES = {
    "a": {"flac": b"fLaC", "json": b"{}\n"},
    "目录/录音 1": {"flac": b"", "json": b"x" * 512},
    "x" * 120: {"flac": b"y" * 513, "json": b""},
    "a.b/c.d": {"seg.png": bytes(9000), "cls": b"1"},
}


def as_tarfile(samples: dict[str, dict[str, bytes]]) -> bytes:
    return tar_of({f"{key}.{extension}": data for key, fields in samples.items() for extension, data in fields.items()})


@pytest.mark.parametrize("count", range(len(SAMPLES) + 1))
def test_the_bytes_are_those_of_tarfile(tmp_path: Path, count: int) -> None:
    path = tmp_path / "000000.tar"
    samples = dict(list(SAMPLES.items())[:count])
    with TarWriter(path, create_index=True) as writer:
        for key, fields in samples.items():
            writer.add(key, fields)
        assert len(writer) == count
        assert not path.exists()
    assert path.read_bytes() == as_tarfile(samples)
    source = LocalFile(str(path))
    members = list(tar.members(source.read, source.size))
    index = (tmp_path / "000000.tar.idx").read_bytes()
    assert index == offsets.build([member.header_offset for member in members][::2], source.size)
    assert sorted(os.listdir(tmp_path)) == ["000000.tar", "000000.tar.idx"]


@settings(max_examples=settings().max_examples // 2)
@given(st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1), st.binary()))
def test_any_key_is_read_back(tmp_path_factory: pytest.TempPathFactory, data: dict[str, bytes]) -> None:
    path = tmp_path_factory.mktemp("any") / "a.tar"
    with TarWriter(path) as writer:
        for key, value in data.items():
            writer.add(key, {"bin": value})
    assert path.read_bytes() == as_tarfile({key: {"bin": value} for key, value in data.items()})
    with tarfile.open(path) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive}
    assert found == {f"{key}.bin": value for key, value in data.items()}


def test_any_buffer(tmp_path: Path) -> None:
    numbers = np.arange(300, dtype="<i2")
    with TarWriter(tmp_path / "a.tar") as writer:
        writer.add("a", {"pcm": memoryview(numbers), "txt": bytearray(b"text")})
    expected = as_tarfile({"a": {"pcm": numbers.tobytes(), "txt": b"text"}})
    assert (tmp_path / "a.tar").read_bytes() == expected


def test_samples_of_one_field_and_of_many_are_indexed(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar", create_index=True) as writer:
        writer.add("a", {"txt": b"1"})
        writer.add("b", {"txt": b"2", "json": b"{}", "wav": b"3"})
        writer.add("c", {"txt": b"4"})
    size = (tmp_path / "a.tar").stat().st_size
    assert offsets.parse((tmp_path / "a.tar.idx").read_bytes(), size).tolist() == [0, 1024, 4096, size]


@pytest.mark.parametrize("key", ["", "a/", "a\0b", "../a", "a/../../b"])
def test_a_key_without_a_place_is_refused(tmp_path: Path, key: str) -> None:
    with TarWriter(tmp_path / "a.tar") as writer:
        with pytest.raises(FormatError, match="key"):
            writer.add(key, {"txt": b""})
        writer.add("a", {"txt": b""})
    assert (tmp_path / "a.tar").read_bytes() == as_tarfile({"a": {"txt": b""}})


@pytest.mark.parametrize("extension", ["", "a/b", "\0"])
def test_a_field_without_a_place_is_refused(tmp_path: Path, extension: str) -> None:
    with TarWriter(tmp_path / "a.tar") as writer:
        with pytest.raises(FormatError, match="extension"):
            writer.add("a", {"txt": b"", extension: b""})
        with pytest.raises(FormatError, match="without fields"):
            writer.add("a", {})
    assert (tmp_path / "a.tar").read_bytes() == as_tarfile({})


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with TarWriter(path, create_index=True) as writer:
        writer.add("a", {"txt": b""})
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    with pytest.raises(ZeroDivisionError), TarWriter(path, create_index=True) as writer:
        writer.add("b", {"txt": b""})
        raise ZeroDivisionError
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


def test_an_old_index_does_not_outlive_its_tar(tmp_path: Path) -> None:
    for create_index in (True, False):
        with TarWriter(tmp_path / "a.tar", create_index=create_index) as writer:
            writer.add("a", {"txt": b""})
    assert os.listdir(tmp_path) == ["a.tar"]


def test_a_sample_cut_short_is_never_published(tmp_path: Path) -> None:
    """A disk that is full while a sample is written, and a caller who goes on."""
    script = """
import resource, sys
from touchfs.write import TarWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
with TarWriter(sys.argv[1]) as writer:
    writer.add("a", {"bin": bytes(1000)})
    try:
        writer.add("b", {"bin": bytes(200_000)})
    except OSError:
        print("full")
"""
    # Without the signal's default action, the limit is an error.
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{script}",
            tmp_path / "t",
        ],
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "full\n"
    assert "SourceError" in ran.stderr
    assert os.listdir(tmp_path) == []


def test_a_killed_writer_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    script = """
import sys
from touchfs.write import TarShardsWriter
with TarShardsWriter(sys.argv[1] + "/%06d.tar", samples_per_shard=3, create_index=True) as writer:
    for i in range(8):
        writer.add(str(i), {"txt": b""})
    print("ready", flush=True)
    sys.stdin.read()
"""
    arguments = [sys.executable, "-c", script, tmp_path]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
    shown = [name for name in sorted(os.listdir(tmp_path)) if not name.startswith(".touchfs-tmp-")]
    assert shown == ["000000.tar", "000000.tar.idx", "000001.tar", "000001.tar.idx"]
    assert (tmp_path / "000001.tar").read_bytes() == as_tarfile({str(i): {"txt": b""} for i in (3, 4, 5)})


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be written"), TarWriter(tmp_path / "none" / "a.tar"):
        pass


def keys_of(path: str | Path) -> list[str]:
    with tarfile.open(path) as archive:
        return [name.removesuffix(".txt") for name in archive.getnames()]


def test_shards_by_count(tmp_path: Path) -> None:
    with TarShardsWriter(tmp_path / "100%%-%03d.tar", samples_per_shard=3, first=5) as writer:
        for i in range(7):
            writer.add(str(i), {"txt": b""})
            # A shard is there as soon as it is full.
            assert len(os.listdir(tmp_path)) == (i + 3) // 3
    assert [os.path.basename(path) for path in writer.paths] == ["100%-005.tar", "100%-006.tar", "100%-007.tar"]
    assert [keys_of(path) for path in writer.paths] == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


def test_shards_by_size(tmp_path: Path) -> None:
    pattern = tmp_path / "%06d.tar"
    with TarShardsWriter(pattern, samples_per_shard=None, bytes_per_shard=2048, create_index=True) as writer:
        for i, size in enumerate([0, 1, 5000, 0, 0, 0, 1]):
            writer.add(str(i), {"txt": bytes(size)})
    assert [keys_of(path) for path in writer.paths] == [["0", "1", "2"], ["3", "4", "5", "6"]]
    assert all(os.path.exists(f"{path}.idx") for path in writer.paths)


def test_an_error_drops_the_shard_at_work(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), TarShardsWriter(tmp_path / "%d.tar", samples_per_shard=2) as writer:
        for i in range(3):
            writer.add(str(i), {"txt": b""})
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["0.tar"]
    assert [os.path.basename(path) for path in writer.paths] == ["0.tar"]


def test_no_samples_no_shards(tmp_path: Path) -> None:
    with TarShardsWriter(tmp_path / "%d.tar"):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["a.tar", "%s%d.tar", "100%.tar", "%%d.tar"])
def test_a_pattern_without_a_number(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="%06d"):
        TarShardsWriter(tmp_path / name)


@pytest.mark.parametrize("limits", [{"samples_per_shard": 0}, {"bytes_per_shard": 0}, {"first": -1}])
def test_shards_that_cannot_be(tmp_path: Path, limits: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="no shards"):
        TarShardsWriter(tmp_path / "%d.tar", **limits)
