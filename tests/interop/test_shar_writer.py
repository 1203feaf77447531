"""What is written in place of Lhotse's SharWriter: the same bytes, and Lhotse reads them; and webdataset our tars."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import webdataset
from interop.test_shar import features_of
from lhotse import CutSet, MonoCut, MultiCut, Recording, SupervisionSegment
from lhotse.array import Array
from lhotse.audio import AudioSource
from lhotse.shar import SharWriter as LhotseSharWriter

from touchfs.core.errors import FormatError
from touchfs.format.idx import offsets
from touchfs.write import Audio, SharWriter, TarShardsWriter

# Lhotse leaves tars open when it streams; both warn that compressed lines cannot be indexed.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*compress_jsonl=False:UserWarning"),
]

RATE = 16000
FIELDS = {
    "recording": "wav",
    "features": "numpy",
    "embedding": "numpy",
    "alignment": "numpy",
    "target": "flac",
    "text": "jsonl",
    "score": "jsonl",
}
KEYS = ["cut-0", "目录/录音-1", "a.b.c", "x" * 120, "é" * 70, "cut-5", "cut-6"]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    directory = tmp_path_factory.mktemp("recordings")
    random = np.random.default_rng(0)
    made = []
    for i in range(len(KEYS)):
        path = directory / f"{i}.wav"
        channels = 2 if i in (3, 4) else 1
        soundfile.write(path, random.normal(0, 0.4, (8000 + i, channels)), RATE)
        made.append(Recording.from_file(path, recording_id=f"rec-{i}"))
    return made


@pytest.fixture(scope="module")
def cuts(recordings: list[Recording]) -> list[MonoCut]:
    """Of any kind: parts, one channel of two, two channels, speed changed, some without some fields."""
    made = []
    for i, (key, recording) in enumerate(zip(KEYS, recordings, strict=True)):
        if i == 6:
            recording = recording.perturb_speed(1.1)
        cut = recording.to_cut()
        cut.id = key
        cut.supervisions = [
            SupervisionSegment(f"{key}-s", recording.id, 0, cut.duration, text=f"你好 {i}", speaker="é")
        ]
        if i == 3:
            cut = MonoCut(key, 0, cut.duration, 1, cut.supervisions, recording=recording)
        if i in (1, 2):
            cut = cut.truncate(offset=0.1, duration=0.2)
            cut.id = key
        if i % 2 == 0:
            cut = cut.attach_tensor("embedding", np.arange(4 + i, dtype="f4"))
            frames = np.arange(50 * 2, dtype="i4").reshape(50, 2)
            cut = cut.attach_tensor("alignment", frames, frame_shift=0.01, temporal_dim=0)
            cut.text = "有 text"
        if i in (0, 4):
            cut.target = recordings[4]
            if i == 0:
                cut.target_channel_selector = [1]
                cut = cut.truncate(duration=0.3, preserve_id=True)
        if i == 5:
            cut = MonoCut(key, 0, 1.5, 0)
        if i == 0:
            cut.features = features_of(recordings[0])
        cut.custom = {**(cut.custom or {}), "score": None if i == 1 else [i, {"shape": 0.5}]}
        made.append(cut)
    return made


def contents(directory: Path) -> dict[str, bytes]:
    files = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
    return {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in files.items()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compress_jsonl": False},
        {"compress_jsonl": False, "create_index": False, "shard_size": 2, "shard_offset": 7},
        {"compress_jsonl": False, "shard_size": 3},
        {"compress_jsonl": False, "shard_size": 7},
        {"shard_size": None, "shard_suffix": ".dev", "include_cuts": False},
        {"shard_size": None},
    ],
    ids=str,
)
def test_the_bytes_are_those_of_lhotse(tmp_path: Path, cuts: list[MonoCut], options: dict[str, object]) -> None:
    found, paths = [], []
    for writer_type in (LhotseSharWriter, SharWriter):
        directory = tmp_path / writer_type.__module__
        directory.mkdir()
        with writer_type(str(directory), FIELDS, **options) as writer:
            for cut in cuts:
                writer.write(cut)
        found.append(contents(directory))
        paths.append({name: [Path(p).name for p in names] for name, names in writer.output_paths.items()})
    theirs, ours = found
    assert paths[0] == paths[1]
    assert theirs.keys() == ours.keys()
    for name, data in theirs.items():
        if name.endswith(".tar.idx"):  # Lhotse's last number may be 10240 too small
            assert ours[name][:-8] == data[:-8]
            assert int.from_bytes(ours[name][-8:], "little") == len(ours[name.removesuffix(".idx")])
        else:
            assert ours[name] == data, name


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "original"])
def test_each_encoding_is_that_of_lhotse(tmp_path: Path, cuts: list[MonoCut], kind: str) -> None:
    found = []
    for writer_type in (LhotseSharWriter, SharWriter):
        directory = tmp_path / writer_type.__module__
        directory.mkdir()
        with writer_type(directory, {"recording": kind}, compress_jsonl=False, warn_unused_fields=False) as writer:
            for cut in cuts[:5]:
                cut = cut.drop_features()
                cut.custom = None
                writer.write(cut)
        found.append(contents(directory))
    assert found[0] == found[1]


@pytest.mark.parametrize("compress_jsonl", [False, True])
def test_lhotse_reads_it(tmp_path: Path, cuts: list[MonoCut], compress_jsonl: bool) -> None:
    with SharWriter(tmp_path, FIELDS, shard_size=3, compress_jsonl=compress_jsonl) as writer:
        for cut in cuts:
            writer.write(cut)
    # Lhotse cannot index names that are not ASCII or over 100 bytes: it streams those.
    found = list(CutSet.from_shar(in_dir=tmp_path, indexed=False))
    assert [cut.id for cut in found] == KEYS
    for cut, expected in zip(found, cuts, strict=True):
        assert [s.to_dict() for s in cut.supervisions] == [s.to_dict() for s in expected.supervisions]
        assert cut.duration == expected.duration
        assert cut.has_recording == expected.has_recording
        if cut.has_recording:
            np.testing.assert_allclose(cut.load_audio(), np.clip(expected.load_audio(), -1, 1), atol=1 / 2**15)
        for name in ("embedding", "alignment"):
            assert cut.has_custom(name) == expected.has_custom(name)
            if cut.has_custom(name):
                np.testing.assert_array_equal(cut.load_custom(name), expected.load_custom(name))
        assert cut.custom.get("text") == expected.custom.get("text")
        assert cut.custom["score"] == expected.custom["score"]
    np.testing.assert_array_equal(found[0].load_features(), cuts[0].load_features())
    np.testing.assert_allclose(found[0].load_custom("target"), cuts[0].load_custom("target"), atol=1 / 2**15)


@pytest.mark.parametrize("indexed", [True, False])
def test_lhotse_reads_what_was_no_cut_of_its_own(tmp_path: Path, indexed: bool) -> None:
    random = np.random.default_rng(2)
    audios = [random.integers(-(2**15), 2**15, 1000 + i).astype("i2") for i in range(7)]
    vectors = [random.normal(size=(i + 1, 2)) for i in range(7)]
    fields = {"recording": "flac", "noise": "wav", "vector": "numpy", "text": "jsonl"}
    with SharWriter(tmp_path, fields, shard_size=3, compress_jsonl=False) as writer:
        for i, (audio, vector) in enumerate(zip(audios, vectors, strict=True)):
            supervision = {"id": f"s{i}", "recording_id": f"c{i}", "start": 0, "duration": 0.05, "channel": 0}
            cut = {"id": f"c{i}", "supervisions": [supervision], "custom": {"lang": "中文"}}
            stereo = Audio(np.stack([audio, audio]), RATE)
            noise, text = (stereo, f"文 {i}") if i % 2 else (None, None)
            writer.write(cut, {"recording": Audio(audio, RATE), "vector": vector, "noise": noise, "text": text})
    found = list(CutSet.from_shar(in_dir=tmp_path, indexed=indexed))
    assert [cut.id for cut in found] == [f"c{i}" for i in range(7)]
    for i, cut in enumerate(found):
        assert isinstance(cut, MonoCut)
        assert cut.duration == (1000 + i) / RATE
        assert cut.supervisions[0].id == f"s{i}"
        np.testing.assert_array_equal(cut.load_audio()[0] * 2**15, audios[i])
        np.testing.assert_array_equal(cut.load_vector(), vectors[i])
        assert cut.lang == "中文"
        assert cut.has_custom("noise") == cut.has_custom("text") == bool(i % 2)
        if i % 2:
            assert cut.text == f"文 {i}"
            np.testing.assert_array_equal(cut.load_noise()[1] * 2**15, audios[i])


def test_a_part_of_a_manifest_with_encoded_bytes(tmp_path: Path, recordings: list[Recording]) -> None:
    """The lines of Lhotse's manifests and the files' bytes, for those who have no Lhotse."""
    with SharWriter(tmp_path, {"recording": "original"}, compress_jsonl=False) as writer:
        for recording in recordings:
            cut = json.loads(json.dumps(recording.to_cut().to_dict()))
            writer.write(cut, {"recording": Path(recording.sources[0].source).read_bytes()})
    for cut, recording in zip(CutSet.from_shar(in_dir=tmp_path, indexed=True), recordings, strict=True):
        assert isinstance(cut, MultiCut if recording.num_channels > 1 else MonoCut)
        np.testing.assert_array_equal(cut.load_audio(), recording.load_audio())


def test_cuts_that_are_no_one_recording_are_refused(tmp_path: Path, cuts: list[MonoCut]) -> None:
    with SharWriter(tmp_path, {"recording": "wav"}, compress_jsonl=False) as writer:
        with pytest.raises(FormatError, match="a MixedCut cannot be stored"):
            writer.write(cuts[0].append(cuts[2]))
        with pytest.raises(FormatError, match="a PaddingCut cannot be stored"):
            writer.write(cuts[0].pad(1.0).tracks[1].cut)
    assert not list(tmp_path.iterdir())


def test_it_warns_of_what_is_not_stored(tmp_path: Path, cuts: list[MonoCut]) -> None:
    with SharWriter(tmp_path, {"text": "jsonl"}, compress_jsonl=False) as writer:
        with pytest.warns(UserWarning, match="cuts have ") as told, pytest.raises(FormatError, match="cut-0"):
            writer.write(cuts[0])  # whose data is in memory, so cannot be told in JSON
        names = {str(one.message).split()[2].rstrip(",") for one in told}
    assert names == {"recording", "features", "embedding", "alignment", "target"}


def test_a_file_that_is_read_whatever_its_index_ends_with(tmp_path: Path) -> None:
    """Where Lhotse's own index would be 10240 bytes short: members that end 512 bytes before a multiple of 10240."""
    with SharWriter(tmp_path, {"vector": "numpy"}, compress_jsonl=False) as writer:
        writer.write({"id": "a", "duration": 1.0}, {"vector": np.zeros((10240 - 512 - 2 * 512 - 512 - 128), "u1")})
    tar = tmp_path / "vector.000000.tar"
    index = offsets.parse(Path(f"{tar}.idx").read_bytes(), tar.stat().st_size)
    assert index.tolist() == [0, 20480]
    (cut,) = CutSet.from_shar(in_dir=tmp_path, indexed=True)
    assert cut.load_vector().shape == (8064,)
    assert isinstance(cut.vector, Array)


def test_in_memory_sources(tmp_path: Path, recordings: list[Recording]) -> None:
    data = Path(recordings[0].sources[0].source).read_bytes()
    recording = Recording("r", [AudioSource("memory", [0], data)], RATE, 8000, 0.5, [0])
    with SharWriter(tmp_path, {"recording": "original"}, compress_jsonl=False) as writer:
        writer.write(recording.to_cut())
    (cut,) = CutSet.from_shar(in_dir=tmp_path, indexed=True)
    np.testing.assert_array_equal(cut.load_audio(), recording.load_audio())


def test_webdataset_reads_our_tars(tmp_path: Path) -> None:
    samples = {key: {"flac": key.encode(), "seg.json": b"{}"} for key in ["a", "目录/录音", "x" * 120, "d"]}
    with TarShardsWriter(tmp_path / "%06d.tar", samples_per_shard=3) as writer:
        for key, fields in samples.items():
            writer.add(key, fields)
    found = {}
    for sample in webdataset.WebDataset(writer.paths, shardshuffle=False):
        found[sample["__key__"]] = {name: data for name, data in sample.items() if not name.startswith("__")}
    assert found == samples
