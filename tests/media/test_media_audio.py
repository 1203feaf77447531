import os
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
from wav_files import wav_of

from touchfs.core.errors import FormatError, NotFoundError, SourceError
from touchfs.media.audio import decode


def noise(samples: int, channels: int = 1) -> np.ndarray:
    shape = samples if channels == 1 else (samples, channels)
    return np.random.default_rng(samples).integers(-20_000, 20_000, shape, dtype=np.int16)


@pytest.mark.parametrize(
    "name", ["a.wav", "a.flac", "a.aiff", "a.au", "a.w64", "a.caf", "2024-01-01T10:00 ü?.wav", "no"]
)
def test_without_resampling_not_a_bit_changes(tmp_path: Path, name: str) -> None:
    pcm = noise(12_345)
    soundfile.write(tmp_path / name, pcm, 16000, format=None if "." in name else "WAV")
    assert decode(str(tmp_path / name), 16000) == pcm.tobytes()


@pytest.mark.parametrize("samples", [0, 1, 2, 999])
def test_short_ones(tmp_path: Path, samples: int) -> None:
    soundfile.write(tmp_path / "a.wav", noise(samples), 16000)
    assert decode(str(tmp_path / "a.wav"), 16000) == noise(samples).tobytes()


@pytest.mark.parametrize("arithmetic", ["s16", "float"])
def test_stereo_is_mixed(tmp_path: Path, arithmetic: str) -> None:
    pcm = noise(5000, 2)
    soundfile.write(tmp_path / "a.wav", pcm, 16000)
    mixed = np.frombuffer(decode(str(tmp_path / "a.wav"), 16000, arithmetic), "<i2")
    assert np.abs(mixed - pcm.astype(np.int64).mean(1)).max() <= 1


def test_the_arithmetic_matters_little(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(50_000, 2), 44100)
    coarse, fine = (np.frombuffer(decode(str(tmp_path / "a.wav"), 16000, how), "<i2") for how in ("s16", "float"))
    assert len(coarse) == len(fine) == 18141
    assert 0 < np.abs(coarse.astype(int) - fine).max() <= 6


def test_tags_that_are_not_utf8(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(100), 16000)
    data = (tmp_path / "a.wav").read_bytes()
    info = b"INFOIART" + (4).to_bytes(4, "little") + b"\xff\xfe\xfd\0"
    data += b"LIST" + len(info).to_bytes(4, "little") + info
    (tmp_path / "a.wav").write_bytes(data[:4] + (len(data) - 8).to_bytes(4, "little") + data[8:])
    assert decode(str(tmp_path / "a.wav"), 16000) == noise(100).tobytes()


def test_the_default_stream_is_taken_else_the_one_of_most_channels(tmp_path: Path) -> None:
    for marked, expected in ((None, 2), (0, 0), (2, 2)):
        path = str(tmp_path / f"{marked}.mka")
        with av.open(path, "w") as container:
            streams = [
                container.add_stream("pcm_s16le", rate=16000, layout=layout) for layout in ("mono", "mono", "stereo")
            ]
            for i, stream in enumerate(streams):
                stream.disposition = av.stream.Disposition.default if i == marked else av.stream.Disposition(0)
                width = 2 if i == 2 else 1
                data = np.full((1, 1000 * width), 100 * (i + 1), np.int16)
                frame = av.AudioFrame.from_ndarray(data, "s16", "stereo" if i == 2 else "mono")
                frame.sample_rate = 16000
                container.mux(stream.encode(frame))
        assert set(np.frombuffer(decode(path, 16000), "<i2")) == {100 * (expected + 1)}, marked


def damaged(tmp_path: Path) -> dict[str, bytes]:
    """Files that ffmpeg would decode in part, or not at all."""
    pcm = noise(100_000)
    files = {}
    for kind in ("flac", "aiff", "mp3", "wav"):
        soundfile.write(tmp_path / f"x.{kind}", pcm, 16000)
        files[kind] = (tmp_path / f"x.{kind}").read_bytes()
    half = {kind: len(data) // 2 for kind, data in files.items()}
    return {
        "cut.flac": files["flac"][: half["flac"]],
        "cut-by-one.flac": files["flac"][:-1],
        "hole.flac": files["flac"][: half["flac"]] + files["flac"][half["flac"] + 9000 :],
        "cut.aiff": files["aiff"][: half["aiff"]],
        "zeros.mp3": files["mp3"][: half["mp3"]] + bytes(4000) + files["mp3"][half["mp3"] + 4000 :],
        "cut.wav": files["wav"][: half["wav"] + 1],
        "head.flac": files["flac"][:20],
        "text": b"not a sound\n",
        "empty": b"",
        "random": np.random.default_rng(0).bytes(10_000),
        "zeros": bytes(100_000),
    }


def test_damage_is_an_error(tmp_path: Path) -> None:
    for name, data in damaged(tmp_path).items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(FormatError) as caught:
            decode(str(path), 16000)
        assert str(caught.value).startswith(f"{path}: "), name
        assert "\n" not in str(caught.value)


def test_a_picture_has_no_sound(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with av.open(str(path), "w", format="image2", options={"update": "1"}) as container:
        stream = container.add_stream("png", rate=1, width=16, height=16, pix_fmt="rgb24")
        container.mux(stream.encode(av.VideoFrame(16, 16, "rgb24")))
    with pytest.raises(FormatError, match="has no sound"):
        decode(str(path), 16000)


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="none: no such file"):
        decode(str(tmp_path / "none"), 16000)
    with pytest.raises((SourceError, FormatError), match="cannot be decoded"):
        decode(str(tmp_path), 16000)


def test_nothing_is_left_open(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / "a.wav").write_bytes(wav_of(bytes(4000), 44100, 2))
        before = len(os.listdir("/proc/self/fd"))
        decode(str(tmp_path / "a.wav"), 16000)
        (tmp_path / "b").write_bytes(b"no sound")
        with pytest.raises(FormatError):
            decode(str(tmp_path / "b"), 16000)
        assert len(os.listdir("/proc/self/fd")) <= before, i
