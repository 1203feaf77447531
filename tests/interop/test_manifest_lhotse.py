"""Lists that real Lhotse reads: Kaldi's data directory, and its own manifests."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, RecordingSet, SupervisionSet, validate
from lhotse.kaldi import load_kaldi_data_dir

from touchfs.manifest import kaldi
from touchfs.manifest.entry import ListedRecording, Utterance, recording_id, utterance_ids
from touchfs.manifest.lhotse import build_cut, build_recording, build_supervision

RATE = 16000
KEYS = ["talks/monday", "talks/tuesday late", "你好", "a", "a-b"]


@pytest.fixture(scope="module")
def utterances(tmp_path_factory: pytest.TempPathFactory) -> list[Utterance]:
    directory = tmp_path_factory.mktemp("audio dir")
    random = np.random.default_rng(7)
    found = []
    for number, key in enumerate(KEYS):
        length = 16000 + 1001 * number
        path = directory / f"{number}.wav"
        soundfile.write(path, random.integers(-9999, 9999, length).astype(np.int16), RATE)
        recording = ListedRecording(recording_id(key), str(path), RATE, 1, length)
        for segment in range(3):
            name, speaker_id = utterance_ids(recording_id(key), segment, speaker := ["Ann", "Ann-Lee", "A nn"][segment])
            first, count = 16016 * segment // 3 + number, 999 + number * 7
            text = ["Good\nmorning.", "你 好", None][segment]
            found.append(Utterance(name, recording, first, count, speaker_id, text, speaker, "en"))
    return sorted(found, key=lambda each: each.id)


def audio_of(utterance: Utterance) -> np.ndarray:
    samples, _ = soundfile.read(utterance.recording.path, dtype="float32")
    return np.asarray(samples[utterance.offset : utterance.offset + utterance.length])


def recordings_of(utterances: list[Utterance]) -> list[ListedRecording]:
    return sorted({each.recording for each in utterances}, key=lambda each: each.id)


def test_a_kaldi_data_directory(utterances: list[Utterance], tmp_path: Path) -> None:
    for name in ("segments", "text", "utt2spk", "utt2dur"):
        (tmp_path / name).write_text("".join(getattr(kaldi, f"build_{name}")(each) for each in utterances))
    for name in ("wav_scp", "reco2dur"):
        lines = [getattr(kaldi, f"build_{name}")(each) for each in recordings_of(utterances)]
        (tmp_path / name.replace("_", ".")).write_text("".join(lines))

    recordings, supervisions, _ = load_kaldi_data_dir(tmp_path, RATE)
    assert supervisions is not None
    cuts = CutSet.from_manifests(recordings, supervisions)
    validate(cuts, read_data=True)
    found = {cut.supervisions[0].id: cut for cut in cuts.trim_to_supervisions(keep_overlapping=False)}
    assert list(found) and found.keys() == {each.id for each in utterances}
    for each in utterances:
        cut = found[each.id]
        assert np.array_equal(cut.load_audio()[0], audio_of(each))
        assert cut.supervisions[0].speaker == each.speaker_id
        assert (cut.supervisions[0].text or "") == " ".join((each.text or "").split())


def test_lhotses_manifests(utterances: list[Utterance], tmp_path: Path) -> None:
    recordings = recordings_of(utterances)
    lists = {
        "recordings": [build_recording(each) for each in recordings],
        "supervisions": [build_supervision(each) for each in utterances],
        "cuts": [build_cut(each, [one for one in utterances if one.recording == each]) for each in recordings],
    }
    for name, lines in lists.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    loaded = RecordingSet.from_jsonl(tmp_path / "recordings.jsonl")
    supervisions = SupervisionSet.from_jsonl(tmp_path / "supervisions.jsonl")
    cuts = CutSet.from_jsonl(tmp_path / "cuts.jsonl")
    validate(loaded, read_data=True)
    validate(supervisions)
    validate(cuts, read_data=True)
    by_id = {each.id: each for each in utterances}
    for source in (cuts, CutSet.from_manifests(loaded, supervisions)):
        trimmed = list(source.trim_to_supervisions(keep_overlapping=False))
        assert len(trimmed) == len(utterances)
        for cut in trimmed:
            utterance = by_id[cut.supervisions[0].id]
            assert np.array_equal(cut.load_audio()[0], audio_of(utterance))
            assert (cut.supervisions[0].speaker, cut.supervisions[0].language) == (utterance.speaker, "en")


@pytest.mark.parametrize("channels", [2, 3])
def test_recordings_of_several_channels(channels: int, tmp_path: Path) -> None:
    samples = np.random.default_rng(7).integers(-9999, 9999, (8000, channels)).astype(np.int16)
    path = tmp_path / "a.wav"
    soundfile.write(path, samples, RATE)
    recording = ListedRecording("a", str(path), RATE, channels, 8000)
    utterance = Utterance("a-0000", recording, 1001, 2002, "a-0000")
    (tmp_path / "cuts.jsonl").write_text(build_cut(recording, [utterance]))
    cuts = CutSet.from_jsonl(tmp_path / "cuts.jsonl")
    validate(cuts, read_data=True)
    (cut,) = cuts.trim_to_supervisions(keep_overlapping=False)
    assert np.array_equal(cut.load_audio(), samples[1001:3003].T.astype(np.float32) / 32768)
