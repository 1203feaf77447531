"""What programs do with files: list, copy, sum, search, map and send them; and all of it gives the shards' bytes."""

import ctypes
import hashlib
import io
import mmap
import os
import random
import socket
import subprocess
import tarfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from mounts import SPEECH, WIDE, samples_of

WAV_HEADER = 44
# What a file begins with before the bytes of the shard.
ADDED = {".wav": WAV_HEADER, ".npy": 128}


def run(*command: object) -> str:
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def test_find_shows_every_file_once(mounted):
    found = run(
        "find", mounted.path, "-type", "f", "-not", "-path", "*/.touchfs/*", "-not", "-path", "*/manifests/*"
    ).splitlines()
    assert sorted(found) == sorted(map(str, mounted.files()))
    assert len(set(found)) == len(found) > WIDE
    assert run("find", mounted.path / "shards" / "wide", "-name", "*.npy").count("\n") == WIDE


def test_sizes_are_the_bytes_there_are_to_read(mounted):
    sizes = {path: path.stat().st_size for path in mounted.files()}
    assert sizes == {path: len(path.read_bytes()) for path in sizes}
    assert {path.suffix for path in sizes} == {".wav", ".pcm", ".json", ".txt", ".npy", ".mp4", ".bin"}
    assert 0 in sizes.values()


def test_files_are_the_bytes_of_the_shards(mounted, zoo):
    mixed = mounted.path / "shards" / "mixed"
    audio, metainfo, tokens, video = (samples_of(zoo / "mixed", m) for m in ("audio", "metainfo", "texttoken", "video"))
    for name, ordinal in {"clip": 0, "empty": 1, "long/noise": 2, "no rate": 3, "00000004": 4}.items():
        sound = mixed / f"{name}.wav"
        if sound.exists():
            assert sound.read_bytes()[WAV_HEADER:] == audio[ordinal]
        else:
            assert (mixed / f"{name}.pcm").read_bytes() == audio[ordinal]
        assert (mixed / f"{name}.json").read_bytes() == metainfo[ordinal]
        assert np.load(mixed / f"{name}.texttoken.npy").tobytes() == tokens[ordinal]
    assert (mixed / "clip.mp4").read_bytes() == video[0]
    assert (mixed / "long/noise.bin").read_bytes() == video[2]


def test_a_copy_of_everything_is_the_same(mounted, tmp_path):
    run("cp", "-r", mounted.path / "shards", mounted.path / "segments", tmp_path)
    assert run("diff", "-r", mounted.path / "shards", tmp_path / "shards") == ""
    assert run("diff", "-r", mounted.path / "segments", tmp_path / "segments") == ""


def test_md5sum(mounted, zoo):
    name = "shards/mixed/long/noise.wav"
    data = samples_of(zoo / "mixed", "audio")[2]
    header = (mounted.path / name).read_bytes()[:WAV_HEADER]
    assert run("md5sum", mounted.path / name).split()[0] == hashlib.md5(header + data).hexdigest()


def test_tar_packs_it_all(mounted):
    packed = subprocess.run(["tar", "c", "-C", mounted.path, "segments", "shards"], check=True, capture_output=True)
    assert packed.stderr == b""
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        members = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    assert members == {str(path.relative_to(mounted.path)): path.read_bytes() for path in mounted.files()}


def test_grep_finds_a_sentence(mounted):
    found = run("grep", "-rl", "--include=*.txt", "Any questions?", mounted.path).splitlines()
    assert {os.path.relpath(path, mounted.path) for path in found} == {
        "shards/000000000/talks/tuesday.txt",
        "segments/000000000/talks/tuesday/0001.txt",
    }


def test_a_segment_is_a_piece_of_its_recording(mounted):
    whole = (mounted.path / "shards/000000000/talks/tuesday.wav").read_bytes()[WAV_HEADER:]
    segment = (mounted.path / "segments/000000000/talks/tuesday/0001.wav").read_bytes()[WAV_HEADER:]
    assert segment == whole[2 * int(0.794 * 16000) : 2 * int(1.62 * 16000)]
    assert whole == (SPEECH / "wav" / "02.wav").read_bytes()[WAV_HEADER:]


def test_files_can_be_mapped(mounted):
    path = mounted.path / "shards/mixed/long/noise.wav"
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[:] == path.read_bytes()
        assert mapped[123_457:123_999] == path.read_bytes()[123_457:123_999]
    samples = np.memmap(path, dtype="<i2", mode="r", offset=WAV_HEADER)
    assert samples.tobytes() == path.read_bytes()[WAV_HEADER:]
    tokens = path.with_suffix(".texttoken.npy")
    assert np.array_equal(np.load(tokens, mmap_mode="r"), np.load(tokens))


def test_sendfile(mounted):
    path = mounted.path / "shards/mixed/long/noise.wav"
    receiving, sending = socket.socketpair()
    with open(path, "rb") as file, receiving, ThreadPoolExecutor(1) as other:
        received = other.submit(lambda: b"".join(iter(lambda: receiving.recv(1 << 16), b"")))
        offset = 0
        with sending:
            while sent := os.sendfile(sending.fileno(), file.fileno(), offset, 1 << 20):
                offset += sent
        assert received.result() == path.read_bytes()


def test_direct_reads(mounted):
    """O_DIRECT: past the page cache, straight to the daemon."""
    path = mounted.path / "shards/mixed/long/noise.wav"
    whole = path.read_bytes()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        buffer = mmap.mmap(-1, 1 << 20)
        for offset in (0, 4096, 1 << 20, len(whole) // 4096 * 4096):
            count = os.preadv(descriptor, [buffer], offset)
            assert buffer[:count] == whole[offset : offset + (1 << 20)]
        assert os.preadv(descriptor, [buffer], len(whole) // 4096 * 4096 + 4096) == 0
    finally:
        os.close(descriptor)


def test_reads_at_odd_places(mounted):
    path = mounted.path / "shards/mixed/clip.wav"
    whole = path.read_bytes()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for offset, length in [(0, 1), (WAV_HEADER - 1, 2), (20_043, 10), (20_044, 1), (1 << 40, 5), (1, 0)]:
            assert os.pread(descriptor, length, offset) == whole[offset : offset + length]
    finally:
        os.close(descriptor)


def test_eight_threads_read_at_random(mounted, zoo):
    """Compared with the .bin files at the places that the xattrs tell."""
    paths = [path for path in mounted.files() if path.suffix != ".txt" and "segments" not in path.parts]
    bins = {path: path.read_bytes() for path in zoo.glob("*/*.bin")}
    wrong = []

    def read(seed: int) -> None:
        choose = random.Random(seed)
        for path in choose.choices(paths, k=250):
            told = {name: os.getxattr(path, f"user.touchfs.{name}") for name in ("shard", "field", "offset", "size")}
            start, size = int(told["offset"]), int(told["size"])
            whole = bins[zoo / told["shard"].decode() / f"{told['field'].decode()}.bin"][start : start + size]
            offset = choose.randrange(size + 1)
            length = choose.choice([1, 100, 5000, 300_000])
            with open(path, "rb", 0) as file:
                if (
                    os.pread(file.fileno(), length, ADDED.get(path.suffix, 0) + offset)
                    != whole[offset : offset + length]
                ):
                    wrong.append((path, offset, length))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, range(8)))
    assert wrong == []


libc = ctypes.CDLL(None, use_errno=True)


def pieces(descriptor: int, size: int) -> "tuple[list[bytes], list[int]]":
    """One getdents64 with a buffer of `size` bytes: names, and the place after each."""
    buffer = ctypes.create_string_buffer(size)
    count = libc.getdents64(descriptor, buffer, size)
    assert count >= 0, os.strerror(ctypes.get_errno())
    names, places, at = [], [], 0
    while at < count:  # u64 d_ino, s64 d_off, u16 d_reclen, u8 d_type, name
        places.append(int.from_bytes(buffer.raw[at + 8 : at + 16], "little"))
        length = int.from_bytes(buffer.raw[at + 16 : at + 18], "little")
        names.append(buffer.raw[at + 19 : at + length].partition(b"\0")[0])
        at += length
    return names, places


@pytest.mark.parametrize("size", [300, 4096])
def test_a_listing_can_be_read_in_pieces_and_resumed(mounted, size):
    """While another thread lists the same directory."""
    path = mounted.path / "shards" / "wide"
    ended = threading.Event()
    lengths = set()

    def list_too() -> None:
        while not lengths or not ended.is_set():
            lengths.add(len(os.listdir(path)))

    other = threading.Thread(target=list_too)
    other.start()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        names, places = [], []
        while True:
            more, after = pieces(descriptor, size)
            if not more:
                break
            names += more
            places += after
            os.lseek(descriptor, after[-1], os.SEEK_SET)
        seen = [name for name in names if name not in (b".", b"..")]
        assert Counter(seen) == Counter(map(os.fsencode, os.listdir(path)))
        assert len(seen) == WIDE
        for position in random.Random(size).sample(range(len(names) - 1), 50):
            os.lseek(descriptor, places[position], os.SEEK_SET)
            assert pieces(descriptor, size)[0][0] == names[position + 1]
    finally:
        ended.set()
        other.join()
        os.close(descriptor)
    assert lengths == {WIDE}


def test_the_root_lists_the_views_and_the_control_directory(mounted):
    assert os.listdir(mounted.path) == [
        "by-key",
        "manifests",
        "merged",
        "segments",
        "shards",
        "slices",
        "tokens",
        ".touchfs",
    ]
    assert os.listdir(mounted.path / ".touchfs") == ["info", "errors", "stats", "log-level", "iterators"]


def test_a_shard_with_errors_says_so_and_the_rest_works(mounted):
    broken = mounted.path / "shards" / "broken"
    assert os.listdir(broken) == ["ERROR.txt"]
    report = (broken / "ERROR.txt").read_text()
    assert report.startswith("This shard cannot be served.\n")
    assert "audio.idx" in report
    assert os.listdir(mounted.path / "segments" / "broken") == []
    assert "broken" in mounted.info()["shards_with_errors"]


def test_a_directory_cannot_be_read_and_a_file_not_listed(mounted):
    with pytest.raises(IsADirectoryError):
        (mounted.path / "shards").read_bytes()
    with pytest.raises(NotADirectoryError):
        os.listdir(mounted.path / "shards/mixed/clip.wav")
    with pytest.raises(NotADirectoryError):
        Path(mounted.path / "shards/mixed/clip.wav/more").stat()
