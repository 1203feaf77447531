"""Samples of a tar that are alike, which are indexed together, get the catalog that they get one by one."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wav_files import wav_of

from touchfs.containers.tar import reader
from touchfs.containers.tar.reader import TarShard
from touchfs.indexing.catalogs import make_catalog
from touchfs.shard.options import DEFAULT, Options

KEYS = st.sampled_from(["a", "b", "c", "./d", "e/f", "é", "ERROR", "00000001", ".", "g/"])
EXTENSIONS = ["jpg", "JPG", "json", "txt", "a.json", "wav", "left.flac", "mp4", "metainfo", "srt", ""]


NAMES = st.builds("{}.{}".format, KEYS, st.sampled_from(EXTENSIONS)) | st.sampled_from(["README", "__a__/b.c", ".x"])
CONTENTS = st.sampled_from([b"", b"x", b'{"segments": [{"start": 0, "end": 0.1, "text": "a"}]}', wav_of(bytes(1600))])


@st.composite
def tars(draw: st.DrawFn) -> bytes:
    """Runs of like samples, and what lies between them."""
    packed = io.BytesIO()
    with tarfile.open(
        fileobj=packed, mode="w", format=draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    ) as tar:
        for number in range(draw(st.integers(0, 6))):
            files = draw(st.lists(st.sampled_from(EXTENSIONS), max_size=3))
            for sample in range(draw(st.integers(0, 4))):
                for extension in files:
                    add(tar, f"{number}-{sample}.{extension}", draw(CONTENTS))
            for name in draw(st.lists(NAMES, max_size=3)):
                add(tar, name, draw(CONTENTS), link=draw(st.sampled_from(["", "", "0-0.jpg", "nothing"])))
    return packed.getvalue()


def add(tar: tarfile.TarFile, name: str, data: bytes, link: str = "") -> None:
    member = tarfile.TarInfo(name)
    if link:
        member.type, member.linkname = tarfile.LNKTYPE, link
        tar.addfile(member)
    else:
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))


def catalog(path: Path, options: Options, *, full: bool) -> bytes:
    make_catalog(str(path), str(path.with_suffix(".catalog")), options, full=full)
    return path.with_suffix(".catalog").read_bytes()


@given(
    tar=tars(),
    options=st.sampled_from([DEFAULT, Options(key_rule="last-dot")]),
    run=st.integers(1, 5),
    full=st.booleans(),
)
def test_runs_make_the_same_catalog_as_single_samples(tmp_path_factory, tar, options, run, full):
    path = tmp_path_factory.mktemp("members") / "data.tar"
    path.write_bytes(tar)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_RUN_SAMPLES", run)
        together = catalog(path, options, full=full)
        patch.setattr(TarShard, "runs", TarShard.samples)
        assert together == catalog(path, options, full=full)


def test_sparse_members_are_no_run(tmp_path):
    """Their map is in their row."""
    (tmp_path / "a.bin").touch()
    with (tmp_path / "a.bin").open("r+b") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"x" * 4096)
    (tmp_path / "b.bin").write_bytes(b"y")
    subprocess.run(["tar", "-C", tmp_path, "--sparse", "-cf", tmp_path / "data.tar", "a.bin", "b.bin"], check=True)
    with pytest.MonkeyPatch.context() as patch:
        together = catalog(tmp_path / "data.tar", DEFAULT, full=False)
        patch.setattr(TarShard, "runs", TarShard.samples)
        assert together == catalog(tmp_path / "data.tar", DEFAULT, full=False)
