"""What real Lhotse writes as a Shar, and what it loads from one, as files."""

import io
import json
import os
import random
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, Features, MonoCut, MultiCut, Recording, SupervisionSegment, fastcopy
from lhotse.features.io import MemoryRawWriter
from lhotse.shar import SharWriter
from shown import files

from touchfs.catalog.catalog import Catalog
from touchfs.indexing.catalogs import make_catalog
from touchfs.registry.find import find_shards

# Lhotse leaves tars open when it streams.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

RATE = 16000
LOSSY = {"mp3", "opus"}
KEYS = ["cut-0", "目录/录音-1", "a.b.c", "x" * 120, "é" * 70, "cut-5", "cut-6"]


def recording_of(directory: Path, name: str, samples: int, rate: int = RATE, channels: int = 1) -> Recording:
    path = directory / f"{name}.wav"
    soundfile.write(path, np.random.default_rng(samples).uniform(-0.9, 0.9, (samples, channels)), rate)
    return Recording.from_file(path)


def features_of(recording: Recording) -> Features:
    """Of a frame each 10 ms."""
    data = np.random.default_rng(1).normal(size=(round(recording.duration * 100), 8)).astype("f4")
    with MemoryRawWriter() as writer:
        key = writer.write("ignored", data)
    return Features(
        recording_id=recording.id,
        channels=0,
        start=0,
        duration=recording.duration,
        type="fbank",
        num_frames=len(data),
        num_features=8,
        frame_shift=0.01,
        sampling_rate=RATE,
        storage_type="memory_raw",
        storage_path="",
        storage_key=key,
    )


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> list[MonoCut]:
    """Whole recordings and parts, of one channel and of two, and some that lack any one field."""
    directory = tmp_path_factory.mktemp("recordings")
    made = []
    for i, key in enumerate(KEYS):
        recording = recording_of(directory, f"rec-{i}", 8000 + 160 * i, channels=2 if i == 3 else 1)
        supervisions = [
            SupervisionSegment(f"{key}-{n}", recording.id, start, 0.11, channel=[0, 1] if i == 3 else 0, text=text)
            for n, (start, text) in enumerate([(0.31, "last"), (0.2, None), (0.1, f"你好 {i}")])
        ]
        cut = recording.to_cut()
        cut.supervisions = supervisions
        if i != 4:
            cut.features = features_of(recording)
        if i in (1, 2):
            cut = cut.truncate(offset=0.05, duration=0.4)
        cut.id = key
        if i != 2:
            cut = cut.attach_tensor("embedding", np.arange(4 + i, dtype="f4"))
        if i != 6:
            cut.lang = ["zh", 'a "b"', "ü"][i % 3]
            cut.score = [i, {"shape": 0.5}]
            cut.target = recording_of(directory, f"target-{i}", 8000 + 160 * i)
        if i == 5:
            cut.recording = None
        made.append(cut)
    return made


def write(directory: Path, cuts: list[MonoCut], shard_size: int | None = 3, **fields: str) -> Path:
    directory.mkdir()
    with SharWriter(str(directory), fields, shard_size=shard_size, compress_jsonl=False, warn_unused_fields=False) as w:
        for cut in cuts:
            # What is in memory cannot be left in the cuts.
            cut = cut if "features" in fields else fastcopy(cut, features=None)
            w.write(cut if "embedding" in fields else fastcopy(cut, custom=None))
    return directory


def catalogued(directory: Path, view: str = "shards") -> tuple[dict[str, bytes], str]:
    """The files of all shards, and what is reported of them."""
    found: dict[str, bytes] = {}
    reports = ""
    for shard in find_shards(str(directory)):
        catalog = f"{shard}.idx"  # which is nobody's business, and is not read
        reports += make_catalog(shard, catalog).report
        found |= files(Catalog(catalog), shard, view)
    return found, reports


def shown(directory: Path, view: str = "shards") -> dict[str, bytes]:
    found, reports = catalogued(directory, view)
    assert not reports
    return found


def members(directory: Path, field: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(directory.glob(f"{field}*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                yield member.name, file.read()


def pcm(wav: bytes) -> np.ndarray[Any, Any]:
    return soundfile.read(io.BytesIO(wav), dtype="int16", always_2d=True)[0].T


def as_pcm(audio: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Lhotse's floats: of 16 bits, they are exact."""
    return (audio * 2.0**15).astype(np.int16)


FIELDS = {"features": "numpy", "embedding": "numpy", "lang": "jsonl", "score": "jsonl"}


@pytest.mark.parametrize("shard_size", [3, None])
@pytest.mark.parametrize(
    ("audio", "more"),
    [
        ("wav", {"target": "flac"}),
        ("flac", {"target": "mp3"}),
        ("mp3", {"features": "lilcom"}),
        ("opus", {"embedding": "lilcom"}),
        ("original", {"target": "wav"}),
    ],
)
def test_all_that_lhotse_writes(
    tmp_path: Path, cuts: list[MonoCut], audio: str, more: dict[str, str], shard_size: int | None
) -> None:
    kinds = {"recording": audio, **FIELDS, **more}
    directory = write(tmp_path / "shar", cuts, shard_size, **kinds)
    found = shown(directory)
    left = set(found)

    for line in (line for path in sorted(directory.glob("cuts*.jsonl")) for line in path.read_bytes().splitlines(True)):
        key = json.loads(line)["id"]
        assert found[f"{key}.json"] == line
        assert found[f"{key}.txt"].decode() == f"你好 {KEYS.index(key)} last"
        left -= {f"{key}.json", f"{key}.txt"}
    for field in ("recording", "features", "embedding", "target"):
        for name, data in members(directory, field):
            key, extension = name.rsplit(".", 1)
            if extension in ("json", "nodata", "nometa") or extension == "llc":
                continue
            extension = "wav" if extension == "original" else extension
            path = f"{key}.{extension}" if field == "recording" else f"{key}.{field}.{extension}"
            assert found[path] == data
            left.remove(path)
    loaded = list(CutSet.from_shar(in_dir=directory, indexed=False))
    assert [cut.id for cut in loaded] == KEYS
    for cut in loaded:
        for field in ("features", "embedding"):
            if kinds[field] == "lilcom" and (cut.has_features if field == "features" else cut.has_custom(field)):
                array = np.load(io.BytesIO(found[f"{cut.id}.{field}.npy"]))
                assert np.array_equal(array, cut.features.load() if field == "features" else cut.load_embedding())
                left.remove(f"{cut.id}.{field}.npy")
        if cut.has_custom("lang"):
            assert found[f"{cut.id}.lang.txt"].decode() == cut.lang
            assert json.loads(found[f"{cut.id}.score.json"]) == cut.score
            left -= {f"{cut.id}.lang.txt", f"{cut.id}.score.json"}
    assert not left

    segments = shown(directory, "segments")
    for cut in loaded:
        if not cut.has_recording:
            continue
        for n, supervision in enumerate(cut.supervisions):
            piece = pcm(segments.pop(f"{cut.id}/{n:04d}.wav"))
            theirs = cut.truncate(offset=max(supervision.start, 0), duration=supervision.duration).load_audio()
            if audio in LOSSY:  # decoders seek in them as they like
                assert piece.shape == theirs.shape
            else:
                assert np.array_equal(piece, as_pcm(theirs))
    assert {name.rsplit(".")[-1] for name in segments} == {"json", "txt"}


@pytest.mark.parametrize("audio", ["wav", "flac"])
def test_segments_are_what_lhotse_trims_to(tmp_path: Path, audio: str) -> None:
    """Any times, also past the end of the cut, of parts of recordings."""
    draw = random.Random(0)
    made = []
    for i in range(16):
        rate = draw.choice([8000, 11025, 16000, 22050, 44100])
        samples = draw.randrange(rate, 2 * rate)
        recording = recording_of(tmp_path, f"r{i}", samples, rate, channels=draw.choice([1, 1, 2]))
        cut = recording.to_cut()
        if i % 3:
            start = draw.uniform(0, 0.4)
            cut = cut.truncate(offset=start, duration=draw.uniform(0.2, recording.duration - start))
        cut.id = f"cut-{i}"
        cut.supervisions = []
        for n in range(12):
            start, duration = draw.uniform(0, cut.duration * 0.95), draw.uniform(0.001, 1.2 * cut.duration)
            if n % 4 == 1:  # halves of samples, which floats cannot hold
                start, duration = ((round(time * rate) + 0.5) / rate for time in (start, duration))
            if n % 4 == 2:
                start, duration = round(start, 2), round(duration, 3)
            channel = [0, 1] if isinstance(cut, MultiCut) else 0
            cut.supervisions.append(SupervisionSegment(f"{i}-{n}", recording.id, start, duration, channel, text="x"))
        made.append(cut)
    directory = write(tmp_path / "shar", made, 7, recording=audio)
    segments = shown(directory, "segments")
    compared = 0
    for cut in CutSet.from_shar(in_dir=directory, indexed=False):
        assert cut.start == 0, "only the part that the cut covers is stored"
        trimmed = cut.trim_to_supervisions(keep_all_channels=True)
        for n, each in enumerate(trimmed):
            wav = segments[f"{cut.id}/{n:04d}.wav"]
            assert soundfile.info(io.BytesIO(wav)).samplerate == each.sampling_rate
            assert np.array_equal(pcm(wav), as_pcm(each.load_audio())), (cut, n)
            compared += 1
    assert compared == 192


# Where Lhotse's indexed reader shows other values, none, or an error


@pytest.fixture
def shar(tmp_path: Path, cuts: list[MonoCut]) -> tuple[Path, dict[str, bytes]]:
    directory = write(tmp_path / "shar", cuts, None, recording="wav", embedding="numpy", lang="jsonl")
    return directory, shown(directory)


def rewrite(path: Path, *, before: int, directory: str) -> None:
    """With a directory as one more member."""
    with tarfile.open(path) as tar, tarfile.open(path.with_name("new"), "w") as new:
        for i, member in enumerate(tar):
            if i == before:
                info = tarfile.TarInfo(directory)
                info.type = tarfile.DIRTYPE
                new.addfile(info)
            new.addfile(member, tar.extractfile(member))
    path.with_name("new").replace(path)


@pytest.mark.parametrize("before", [0, 1, 4, 7])
def test_a_directory_among_the_members(shar: tuple[Path, dict[str, bytes]], before: int) -> None:
    directory, expected = shar
    rewrite(directory / "recording.tar", before=before, directory="目录")
    assert shown(directory) == expected


def test_lines_that_were_swapped(shar: tuple[Path, dict[str, bytes]]) -> None:
    directory, expected = shar
    path = directory / "lang.jsonl"
    path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(True))))
    assert shown(directory) == expected


def test_blank_lines_and_a_byte_order_mark(shar: tuple[Path, dict[str, bytes]]) -> None:
    directory, expected = shar
    for name in ("cuts.jsonl", "lang.jsonl"):
        lines = (directory / name).read_bytes().splitlines(True)
        (directory / name).write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines) + b"\n")
    first = f"{KEYS[0]}.json"
    assert shown(directory) == expected | {first: b"\xef\xbb\xbf" + expected[first]}


def test_an_index_that_is_another_ones(shar: tuple[Path, dict[str, bytes]]) -> None:
    directory, expected = shar
    for path in directory.glob("*.idx"):
        path.write_bytes(bytes(64))
    assert shown(directory) == expected


def test_a_damaged_header_and_a_tar_that_is_cut_short(shar: tuple[Path, dict[str, bytes]]) -> None:
    directory, expected = shar
    path = directory / "embedding.tar"
    whole = path.read_bytes()
    with tarfile.open(path) as tar:
        offset = tar.getmember(f"{KEYS[3]}.npy").offset
    lost = {f"{key}.embedding.npy" for key in KEYS[3:]}
    damaged = bytearray(whole)
    damaged[offset + 148] ^= 1
    for data in (bytes(damaged), whole[: offset + 600]):
        path.write_bytes(data)
        found, report = catalogued(directory)
        del found["ERROR.txt"]
        assert found == {name: data for name, data in expected.items() if name not in lost}
        assert f"(at byte {offset})" in report
        assert report.count("has nothing for this cut") == 4


def test_tars_that_were_strung_together(tmp_path: Path, cuts: list[MonoCut]) -> None:
    parts = [write(tmp_path / f"{i}", cuts[3 * i : 3 * i + 3], None, recording="wav") for i in range(2)]
    expected = {name: data for part in parts for name, data in shown(part).items()}
    joined = tmp_path / "joined"
    joined.mkdir()
    for name in ("cuts.jsonl", "recording.tar"):
        (joined / name).write_bytes(b"".join((part / name).read_bytes() for part in parts))
    assert shown(joined) == expected


@pytest.mark.filterwarnings("ignore:create_index=True with compress_jsonl=True")
def test_what_lhotse_writes_unless_told_otherwise(
    tmp_path: Path, cuts: list[MonoCut], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines are compressed."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    plain = shown(write(tmp_path / "plain", cuts[:4], 2, recording="wav"))
    (tmp_path / "shar").mkdir()
    with SharWriter(str(tmp_path / "shar"), {"recording": "wav"}, shard_size=2, warn_unused_fields=False) as writer:
        for cut in cuts[:4]:
            writer.write(fastcopy(cut, features=None, custom=None))
    assert sorted(os.listdir(tmp_path / "shar"))[0] == "cuts.000000.jsonl.gz"
    assert shown(tmp_path / "shar") == plain


def test_a_shar_written_by_two_jobs(tmp_path: Path, cuts: list[MonoCut]) -> None:
    """Which leave the compressed cuts beside the others, so that Lhotse opens it no more."""
    plain = shown(write(tmp_path / "plain", cuts[:4], 2, recording="wav"))
    directory = tmp_path / "shar"
    directory.mkdir()
    shutil.copytree(tmp_path / "plain", directory, dirs_exist_ok=True)
    for number in range(2):
        (directory / f"cuts.{number:06d}.jsonl.gz").write_bytes(b"\x1f\x8b")
    found, report = catalogued(directory)
    del found["ERROR.txt"]
    assert found == plain
    assert report.count("is not needed beside") == 2
