"""Random reads as those of fsx: several handles of a file, every way to read, and each byte compared with a model."""

import json
import mmap
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from arrow_tables import PNG, write_arrow
from mounts import SPEECH, WAYS, Mount, ways
from tars import write_tar

from touchfs.containers.touchnet.writer import TouchNetWriter

PAGE = mmap.PAGESIZE
WAV_HEADER = 44


@pytest.fixture(scope="module")
def kinds(tmp_path_factory) -> tuple[Path, dict[str, bytes | None]]:
    """A source with files of many kinds, and what is in them. None for rendered ones: nobody knows but who renders."""
    place = tmp_path_factory.mktemp("kinds")
    source, dice = place / "source", random.Random(16)
    members = {"big.bin": dice.randbytes(1_500_001), "page.bin": dice.randbytes(PAGE), "odd.bin": dice.randbytes(4097)}
    coded = {}
    for suffix in ("mp3", "flac"):
        subprocess.run(["ffmpeg", "-v", "error", "-i", SPEECH / "wav/02.wav", place / f"a.{suffix}"], check=True)
        coded[f"{suffix}/a.{suffix}"] = (place / f"a.{suffix}").read_bytes()
        coded[f"{suffix}/a.json"] = json.dumps({"segments": [{"start": 0.1, "end": 1.9}]}).encode()
    write_tar(source / "plain.tar", {**members, **coded})
    holes = bytearray(2_000_000)
    holes[100_000:105_000], holes[1_000_000:1_077_777] = dice.randbytes(5_000), dice.randbytes(77_777)
    (place / "holes.bin").write_bytes(holes)
    subprocess.run(["cp", "--sparse=always", place / "holes.bin", place / "sparse.bin"], check=True)
    subprocess.run(["tar", "-C", place, "-cSf", source / "holes.tar", "sparse.bin"], check=True)
    line = json.dumps({"key": "k", "text": "ü" * 20_000}, ensure_ascii=False).encode() + b"\n"
    (source / "lines.jsonl").write_bytes(b'{"key": "first"}\n' + line)
    image, numbers = PNG + dice.randbytes(90_000), np.arange(100_000)
    column = np.frombuffer(dice.randbytes(800_000), "<i8")
    write_arrow(source / "cells.arrow", pa.table({"image": [PNG, image], "n": [1, 2]}))
    write_arrow(source / "packed.arrow", pa.table({"image": [PNG, image], "n": [1, 2]}), "file-zstd")
    write_arrow(source / "column.arrow", pa.table({"n": column, "place": numbers}), rows=30_000)
    audio = dice.randbytes(600_000)
    with TouchNetWriter(source / "touch", {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}) as writer:
        writer.add({"audio": audio, "metainfo": b'{"key": "noise", "sample_rate": 16000}'})
    return source, {
        **{f"shards/plain/{name}": data for name, data in members.items()},
        "shards/plain/mp3/a.mp3": coded["mp3/a.mp3"],
        "segments/plain/mp3/a/0000.wav": None,
        "segments/plain/flac/a/0000.wav": None,
        "shards/holes/sparse.bin": bytes(holes),
        "shards/lines/k.json": line,
        "shards/cells/00000001.png": image,
        "shards/packed/00000001.png": image,
        "columns/column/n.npy": b"\x93NUMPY" + column.tobytes(),
        "shards/touch/noise.wav": b"RIFF" + audio,
    }


@pytest.fixture(scope="module", params=ways("two-workers", "one-worker"))
def mixed(request, kinds, tmp_path_factory) -> Iterator[Mount]:
    mounted = Mount(tmp_path_factory.mktemp("mixed") / "mnt", kinds[0], *WAYS[request.param])
    yield mounted
    mounted.end()


def model_of(path: Path, known: bytes | None) -> bytes:
    """All bytes of the file. What is known of it is at its end, after a header that begins as the known bytes do."""
    content = path.read_bytes()
    if known is None:
        return content
    magic = next((magic for magic in (b"RIFF", b"\x93NUMPY") if known.startswith(magic)), b"")
    assert content.startswith(magic) and content.endswith(known[len(magic) :])
    assert len(content) <= len(known) + 128 if magic else content == known
    return content


class Fsx:
    """Random operations on one file. Each compares what it reads with `model`."""

    def __init__(self, path: Path, model: bytes, seed: int) -> None:
        self._path, self._model, self._dice = path, model, random.Random(seed)
        self._handles: list[int] = []
        # Where something may begin or end: pages, the read-ahead of the kernel, headers, and the end.
        size = len(model)
        self._edges = sorted({0, WAV_HEADER, 128, PAGE, 128 << 10, 1 << 20, size // PAGE * PAGE, size, size + PAGE})
        self.operations: list[Callable[[int], None]] = [
            self.open,
            self.pread,
            self.pread,
            self.preadv,
            self.seek,
            self.map,
            self.send,
            self.direct,
            self.forget,
            self.holes,
        ]

    def run(self, count: int) -> None:
        self.open(-1)
        try:
            for _ in range(count):
                self._dice.choice(self.operations)(self._dice.choice(self._handles))
        finally:
            for handle in self._handles:
                os.close(handle)

    def _place(self) -> tuple[int, int]:
        """An offset and a length, often near an edge."""
        if self._dice.random() < 0.5:
            offset = max(0, self._dice.choice(self._edges) + self._dice.randint(-3, 3))
        else:
            offset = self._dice.randrange(len(self._model) + PAGE)
        return offset, self._dice.choice([0, 1, 2, 511, PAGE, PAGE + 1, 65_537, 300_000])

    def open(self, handle: int) -> None:
        """One more handle, in place of an old one when there are many."""
        if len(self._handles) == 5:
            os.close(self._handles.pop(self._dice.randrange(5)))
        self._handles.append(os.open(self._path, os.O_RDONLY))

    def pread(self, handle: int) -> None:
        offset, length = self._place()
        assert os.pread(handle, length, offset) == self._model[offset : offset + length]

    def preadv(self, handle: int) -> None:
        offset, length = self._place()
        buffers = [bytearray(length // 3), bytearray(7), bytearray(length)]
        count = os.preadv(handle, buffers, offset)
        assert b"".join(buffers)[:count] == self._model[offset : offset + sum(map(len, buffers))]

    def seek(self, handle: int) -> None:
        """Reads that go on where the last one ended, from each kind of place."""
        offset, length = self._place()
        size = len(self._model)
        assert os.lseek(handle, offset, os.SEEK_SET) == offset
        assert os.read(handle, length) == self._model[offset : offset + length]
        assert os.lseek(handle, 0, os.SEEK_CUR) == offset + max(0, min(length, size - offset))
        assert os.lseek(handle, -min(size, offset), os.SEEK_END) == size - min(size, offset)
        assert os.read(handle, length) == self._model[size - min(size, offset) :][:length]

    def map(self, handle: int) -> None:
        offset, length = self._place()
        begin = min(offset, len(self._model) - 1) // PAGE * PAGE
        private = {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
        how = self._dice.choice([{"access": mmap.ACCESS_READ}, private])
        with mmap.mmap(handle, len(self._model) - begin, offset=begin, **how) as mapped:
            assert mapped[offset - begin :][:length] == self._model[offset : offset + length]
            if how is private:  # nobody else sees this
                mapped[0] ^= 0xFF
        assert os.pread(handle, 1, begin) == self._model[begin : begin + 1]

    def send(self, handle: int) -> None:
        offset, length = self._place()
        receiving, sending = os.pipe()
        with open(receiving, "rb", 0) as received, open(sending, "wb", 0):
            length = min(length, 15 * PAGE)  # a pipe takes 16 pages, and the first may be a part of one
            count = os.sendfile(sending, handle, offset, length)
            assert count == max(0, min(length, len(self._model) - offset))
            assert (received.read(count) if count else b"") == self._model[offset : offset + count]

    def direct(self, handle: int) -> None:
        """Past the page cache."""
        offset, length = self._place()
        buffer = mmap.mmap(-1, -(-(length + 1) // PAGE) * PAGE)
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECT)
        try:
            offset = offset // PAGE * PAGE
            count = os.preadv(descriptor, [buffer], offset)
        finally:
            os.close(descriptor)
        assert buffer[:count] == self._model[offset : offset + len(buffer)]

    def forget(self, handle: int) -> None:
        """The kernel asks again for what it has of the file."""
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def holes(self, handle: int) -> None:
        """Bytes are data up to the next hole, and zeros from there up to the next data, whatever is called a hole."""
        offset, _ = self._place()
        hole = data = len(self._model)
        if offset >= len(self._model):
            with pytest.raises(OSError, match="No such device"):
                os.lseek(handle, offset, os.SEEK_HOLE)
            return
        hole = os.lseek(handle, offset, os.SEEK_HOLE)
        with suppress(OSError):  # ENXIO: no more data
            data = os.lseek(handle, offset, os.SEEK_DATA)
        assert offset <= hole <= len(self._model)
        assert not any(self._model[offset:data])
        assert os.fstat(handle).st_size == len(self._model)


NAMES = [
    "shards/plain/big.bin",
    "shards/plain/page.bin",
    "shards/plain/odd.bin",
    "shards/plain/mp3/a.mp3",
    "segments/plain/mp3/a/0000.wav",
    "segments/plain/flac/a/0000.wav",
    "shards/holes/sparse.bin",
    "shards/lines/k.json",
    "shards/cells/00000001.png",
    "shards/packed/00000001.png",
    "columns/column/n.npy",
    "shards/touch/noise.wav",
]


@pytest.mark.parametrize(
    "operations", [80, pytest.param(400, marks=pytest.mark.variant), pytest.param(20_000, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("name", NAMES)
def test_random_reads_give_the_bytes_of_the_model(mixed, kinds, name, operations):
    path = mixed.path / name
    model = model_of(path, kinds[1][name])
    Fsx(path, model, seed=NAMES.index(name)).run(operations)
    assert (mixed.path / ".touchfs/errors").read_text() == ""
