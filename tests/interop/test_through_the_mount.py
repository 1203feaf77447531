"""Real Lhotse and real webdataset read what a mount shows as the ordinary files that they are."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
import webdataset
from lhotse import CutSet, MonoCut, Recording, RecordingSet, SupervisionSegment
from mount.mounts import Mount
from tars import write_samples
from wav_files import wav_of

from touchfs.write import Audio, SharWriter

RATE = 16000
KEYS = ["one", "talks/two", "三", "x" * 120]


def pcm(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(-9000, 9000, 8000 + 160 * number, np.int16)


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """A tar of WebDataset, and a Shar, in one dataset."""
    data = tmp_path_factory.mktemp("peers") / "data"
    data.mkdir()
    samples = {
        key: {"wav": wav_of(pcm(number), RATE), "json": json.dumps({"n": number}).encode()}
        for number, key in enumerate(KEYS)
    }
    write_samples(data / "wds.tar", samples)
    with SharWriter(data / "shar", {"recording": "wav"}, compress_jsonl=False) as writer:
        for number in range(3):
            cut = {"id": f"cut-{number}", "supervisions": [supervision(number, i) for i in (0, 1)]}
            writer.write(cut, {"recording": Audio(pcm(number), RATE)})
    mount = Mount(data.parent / "mnt", data)
    yield mount
    mount.end()


def supervision(number: int, i: int) -> dict[str, object]:
    return {
        "id": f"s{number}-{i}",
        "recording_id": f"cut-{number}",
        "start": 0.1 * i + 0.03,
        "duration": 0.1171875,
        "channel": 0,
        "text": f"words {i}",
    }


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset leaves files open
def test_webdataset_streams_the_samples_of_a_mount(mounted: Mount) -> None:
    shard = mounted.path / "shards" / "wds"
    url = f"pipe:tar -C {shard} --sort=name -cf - ."
    found = {sample["__key__"].removeprefix("./"): sample for sample in webdataset.WebDataset(url, shardshuffle=False)}
    assert found.keys() == set(KEYS)
    for number, key in enumerate(KEYS):
        assert found[key]["wav"] == wav_of(pcm(number), RATE)
        assert json.loads(found[key]["json"]) == {"n": number}
    plain = webdataset.WebDataset(str(mounted.source / "wds.tar"), shardshuffle=False)
    for sample in plain:
        mine = found[sample["__key__"]]
        assert {name: mine[name] for name in ("wav", "json")} == {name: sample[name] for name in ("wav", "json")}


def test_lhotse_loads_recordings_of_a_mount(mounted: Mount) -> None:
    recordings = RecordingSet.from_dir(mounted.path / "shards" / "wds", "**/*.wav")
    assert len(recordings) == len(KEYS)
    for number, key in enumerate(KEYS):
        recording = Recording.from_file(mounted.path / "shards" / "wds" / f"{key}.wav")
        assert (recording.sampling_rate, recording.num_samples) == (RATE, 8000 + 160 * number)
        loaded = np.rint(recording.load_audio()[0] * 32768).astype(np.int16)
        assert np.array_equal(loaded, pcm(number))


def test_lhotses_cuts_of_segments_are_the_segments_of_a_mount(mounted: Mount) -> None:
    """Each supervision as Lhotse cuts it out of the recording, sample for sample."""
    cuts = CutSet.from_shar(in_dir=str(mounted.source / "shar"))
    for number, cut in enumerate(cuts):
        whole = mounted.path / "shards" / "cuts.000000" / f"cut-{number}.wav"
        assert json.loads(whole.with_suffix(".json").read_bytes())["id"] == cut.id
        mine = MonoCut(
            id=cut.id,
            start=0,
            duration=cut.duration,
            channel=0,
            recording=Recording.from_file(whole),
            supervisions=[SupervisionSegment.from_dict(supervision(number, i)) for i in (0, 1)],
        )
        assert np.array_equal(mine.load_audio(), cut.load_audio())
        for i, trimmed in enumerate(cut.trim_to_supervisions()):
            segment = mounted.path / "segments" / "cuts.000000" / f"cut-{number}" / f"{i:04d}.wav"
            assert np.array_equal(Recording.from_file(segment).load_audio(), trimmed.load_audio())
            assert segment.with_suffix(".txt").read_text() == f"words {i}"
