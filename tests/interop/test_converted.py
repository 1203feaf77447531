"""What `convert` and `pack` write, as webdataset and Lhotse read it; and what Lhotse wrote, converted."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import webdataset
from lhotse import CutSet, MonoCut, MultiCut, Recording, SupervisionSegment
from lhotse.shar import SharWriter as LhotseSharWriter

from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.bulk.pack.samples import pack_shar, pack_tar
from touchfs.bulk.pack.touchnet import pack_touch

# Lhotse leaves tars open when it streams.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*compress_jsonl=False:UserWarning"),
]

RATE = 16000
# Lhotse's index knows no names that are not ASCII or are over 100 bytes.
KEYS = ["talks/monday", "a.b.c", "x", "x", "__m__/k", "x~2", "d.d/e"]


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("listed")
    lines = []
    for number, key in enumerate(KEYS):
        samples = np.random.default_rng(number).integers(-(2**15), 2**15, 8000 + number).astype("i2")
        soundfile.write(directory / f"{number}.wav", samples, RATE)
        told: dict[str, object] = {"key": key, "wav": f"{number}.wav", "txt": f"你好 {number}"}
        if number % 2:
            segments = [{"start": 0.1, "end": 0.3, "txt": "a", "speaker": "S"}, {"start": 0.3, "end": -1, "txt": "b"}]
            told["info"] = {"segments": segments, "width": 1}
            told["width"] = 3  # with which Lhotse takes an object for an image
        lines.append(json.dumps(told) + "\n")
    (directory / "data.jsonl").write_text("".join(lines))
    return directory / "data.jsonl"


@pytest.fixture(scope="module")
def touch(listed: Path) -> Path:
    pack_touch(listed, listed.parent / "touch", samples_per_shard=3)
    return listed.parent / "touch"


def samples_of(tars: Path) -> list[dict[str, bytes]]:
    paths = sorted(map(str, tars.glob("*.tar")))
    return list(webdataset.WebDataset(paths, shardshuffle=False))


def check_cuts(shar: Path, listed: Path) -> None:
    cuts = list(CutSet.from_shar(in_dir=shar, indexed=True))
    assert [cut.id for cut in cuts] == KEYS
    for number, (cut, line) in enumerate(zip(cuts, listed.read_text().splitlines(), strict=True)):
        assert isinstance(cut, MonoCut)
        audio, rate = soundfile.read(listed.parent / f"{number}.wav", dtype="int16")
        assert (cut.sampling_rate, cut.num_samples) == (rate, len(audio))
        np.testing.assert_array_equal(cut.load_audio()[0] * 2**15, audio)
        told = [(s.start, s.duration, s.text, s.speaker, s.recording_id) for s in cut.supervisions]
        if number % 2:
            last = round(len(audio) / RATE - 0.3, 10)
            assert told == [(0.1, 0.2, "a", "S", cut.id), (0.3, last, "b", None, cut.id)]
        else:
            assert told == [(0, len(audio) / RATE, f"你好 {number}", None, cut.id)]
        assert json.loads(line).items() <= cut.touchfs["metainfo"].items()
        cut.trim_to_supervisions()


def check_tars(tars: Path, listed: Path) -> None:
    found = samples_of(tars)
    assert len({(sample["__url__"], sample["__key__"]) for sample in found}) == len(KEYS)
    for number, (sample, line) in enumerate(zip(found, listed.read_text().splitlines(), strict=True)):
        assert {name for name in sample if not name.startswith("__")} == {"wav", "json", "txt"}
        audio, _ = soundfile.read(io.BytesIO(sample["wav"]), dtype="int16")
        np.testing.assert_array_equal(audio, soundfile.read(listed.parent / f"{number}.wav", dtype="int16")[0])
        assert sample["txt"].decode() == f"你好 {number}"
        assert json.loads(line).items() <= json.loads(sample["json"]).items()


def test_touchnet_to_both_and_on(touch: Path, listed: Path, tmp_path: Path) -> None:
    convert(str(touch), str(tmp_path / "tars"), TarTarget(4, create_index=True))
    check_tars(tmp_path / "tars", listed)
    convert(str(touch), str(tmp_path / "shar"), SharTarget(3))
    check_cuts(tmp_path / "shar", listed)
    convert(str(tmp_path / "tars"), str(tmp_path / "shar2"), SharTarget(3))
    check_cuts(tmp_path / "shar2", listed)
    convert(str(tmp_path / "shar"), str(tmp_path / "tars2"), TarTarget(5))
    found = samples_of(tmp_path / "tars2")
    assert [json.loads(sample["json"])["id"] for sample in found] == KEYS
    for sample, expected in zip(found, samples_of(tmp_path / "tars"), strict=True):
        assert sample["wav"] == expected["wav"]


def test_packed_without_a_stop_between(listed: Path, tmp_path: Path) -> None:
    pack_tar(listed, tmp_path / "tars", samples_per_shard=3, create_index=True)
    check_tars(tmp_path / "tars", listed)
    pack_shar(listed, tmp_path / "shar", samples_per_shard=3)
    check_cuts(tmp_path / "shar", listed)


def test_packed_in_another_format(listed: Path, tmp_path: Path) -> None:
    pack_shar(listed, tmp_path / "shar", audio_format="flac")
    check_cuts(tmp_path / "shar", listed)
    pack_shar(listed, tmp_path / "slow", audio_format="flac", rate=8000)
    for cut in CutSet.from_shar(in_dir=tmp_path / "slow", indexed=True):
        assert cut.sampling_rate == 8000
        assert cut.load_audio().shape == (1, cut.num_samples)
        assert cut.touchfs["metainfo"]["sample_rate"] == 8000


@pytest.fixture(scope="module")
def lhotse_cuts(listed: Path) -> list[MonoCut | MultiCut]:
    made = []
    for number in range(5):
        path = listed.parent / f"stereo{number}.wav"
        channels = 2 if number == 2 else 1
        soundfile.write(path, np.random.default_rng(number).normal(0, 0.1, (RATE + number, channels)), RATE)
        cut = Recording.from_file(path, recording_id=f"rec-{number}").to_cut()
        cut.id = f"cut-{number}"
        channel = [0, 1] if channels == 2 else 0
        cut.supervisions = [
            SupervisionSegment(f"s{number}", f"rec-{number}", 0.125, 0.5, channel, text=f"文 {number}", language="zh"),
            SupervisionSegment(f"t{number}", f"rec-{number}", 0.7, 0.2, channel, text="b", custom={"snr": 1.5}),
        ]
        if number != 1:
            cut = cut.attach_tensor("embedding", np.arange(4 + number, dtype="f4"))
        cut.lang = "zh"
        made.append(cut)
    return made


def test_what_lhotse_wrote_stays_what_it_was(lhotse_cuts: list[MonoCut], tmp_path: Path) -> None:
    """From Shar to Shar, and through a tar."""
    fields = {"recording": "flac", "embedding": "numpy", "lang": "jsonl"}
    (tmp_path / "theirs").mkdir()
    with LhotseSharWriter(str(tmp_path / "theirs"), fields, shard_size=2, compress_jsonl=False) as writer:
        for cut in lhotse_cuts:
            writer.write(cut)
    convert(str(tmp_path / "theirs"), str(tmp_path / "ours"), SharTarget(3))
    convert(str(tmp_path / "theirs"), str(tmp_path / "tars"), TarTarget(2))
    convert(str(tmp_path / "tars"), str(tmp_path / "back"), SharTarget(4))
    expected = list(CutSet.from_shar(in_dir=tmp_path / "theirs", indexed=True))
    for directory in ("ours", "back"):
        found = list(CutSet.from_shar(in_dir=tmp_path / directory, indexed=True))
        assert [cut.id for cut in found] == [cut.id for cut in expected]
        for cut, original in zip(found, expected, strict=True):
            assert type(cut) is type(original)
            assert [s.to_dict() for s in cut.supervisions] == [s.to_dict() for s in original.supervisions]
            assert cut.recording.id == original.recording.id
            np.testing.assert_array_equal(cut.load_audio(), original.load_audio())
            assert cut.lang == "zh"
            assert cut.has_custom("embedding") == original.has_custom("embedding")
            if cut.has_custom("embedding"):
                np.testing.assert_array_equal(cut.load_embedding(), original.load_embedding())


def test_what_lhotse_wrote_becomes_touchnet(lhotse_cuts: list[MonoCut], tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    fields = {"recording": "wav", "embedding": "numpy"}
    with LhotseSharWriter(str(tmp_path / "theirs"), fields, compress_jsonl=False) as writer:
        for cut in lhotse_cuts:
            writer.write(cut)
    convert(str(tmp_path / "theirs"), str(tmp_path / "touch"), TouchTarget(), leave_out=["embedding.npy"])
    decoder, at, told = json.JSONDecoder(), 0, []
    stored = (tmp_path / "touch/000000000/metainfo.bin").read_text()
    while at < len(stored):
        value, at = decoder.raw_decode(stored, at)
        told.append(value)
    assert [value["key"] for value in told] == [cut.id for cut in lhotse_cuts]
    for number, value in enumerate(told):
        assert value["txt"] == f"文 {number} b"
        assert value["sample_rate"] == RATE
        assert value["lang"] == "zh"
        assert value["info"]["segments"] == [
            {"start": 0.125, "end": 0.625, "txt": f"文 {number}", "language": "zh"},
            {"start": 0.7, "end": 0.9, "txt": "b", "snr": 1.5},
        ]
