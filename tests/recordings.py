"""Recordings in every coding, made by ffmpeg from the same sound, and full decodes of them to compare with."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np
import soundfile

SECONDS = 9
AMR = Path(__file__).parent / "data/media/speech.amr"


@cache
def sound(rate: int, channels: int) -> np.ndarray:
    """Syllables of noise and tones, with pauses, and something of its own in each channel."""
    rng = np.random.default_rng(rate + channels)
    time = np.arange(SECONDS * rate) / rate
    loudness = np.clip(np.sin(2 * np.pi * 1.3 * time), 0, 1) * 0.4
    columns = []
    for channel in range(channels):
        tone = np.sin(2 * np.pi * (180 + 60 * channel + 40 * np.sin(2 * np.pi * 0.4 * time)) * time)
        columns.append(loudness * (0.7 * tone + 0.3 * rng.uniform(-1, 1, len(time))))
    return np.stack(columns, 1)


def ffmpeg(source: Path, target: Path, *options: str) -> Path:
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", source, *options, target], check=True)
    return target


def source_of(directory: Path, rate: int, channels: int) -> Path:
    source = directory / f"source-{rate}-{channels}.wav"
    if not source.exists():
        soundfile.write(source, sound(rate, channels), rate, subtype="PCM_24")
    return source


def make(directory: Path, name: str, rate: int, channels: int, *options: str) -> Path:
    target = directory / name
    return target if target.exists() else ffmpeg(source_of(directory, rate, channels), target, *options)


def make_all(directory: Path, rows: Iterable[tuple[str, int, int, Sequence[str]]]) -> None:
    """What `make` would make of each row. One ffmpeg makes all, as each takes a tenth of a second to start."""
    inputs: dict[Path, int] = {}
    outputs: list[str | Path] = []
    for name, rate, channels, options in rows:
        number = inputs.setdefault(source_of(directory, rate, channels), len(inputs))
        outputs += ["-map", f"{number}:a", *options, directory / name]
    sources = chain.from_iterable(("-i", path) for path in inputs)
    subprocess.run(["ffmpeg", "-v", "error", *sources, *outputs], check=True)


def make_amr(directory: Path) -> Path:
    """`sound(8000, 1)` at 12.2 kbit/s, made by PyAV 18. Neither PyAV 19 nor Debian's ffmpeg has an encoder of AMR."""
    return Path(shutil.copy(AMR, directory / "a.amr"))


def decode_all(path: Path | BinaryIO) -> np.ndarray:
    """Decode from the start with PyAV, whose libav is the same as that of slices."""
    blocks = []
    with av.open(str(path) if isinstance(path, Path) else path) as container:
        for frame in container.decode(container.streams.best("audio")):
            values = frame.to_ndarray()
            blocks.append(values.T if frame.format.is_planar else values.reshape(-1, len(frame.layout.channels)))
    return np.concatenate(blocks)


def decode_by_command(path: Path, channels: int) -> np.ndarray:
    """Decode to 16 bits with the command, which may have another version of libav."""
    (decoded,) = bytes_by_command([(path, ("-f", "s16le"))])
    return np.frombuffer(decoded, "<i2").reshape(-1, channels)


def bytes_by_command(rows: Sequence[tuple[Path, Sequence[str]]], before: Sequence[str] = ()) -> list[bytes]:
    """What the command makes of each recording with the options behind it. One process decodes all."""
    inputs = chain.from_iterable((*before, "-i", path) for path, _ in rows)
    with tempfile.TemporaryDirectory() as place:
        made = [Path(place, str(number)) for number in range(len(rows))]
        outputs = (
            ("-map", f"{number}:a:0", *options, target)
            for number, ((_, options), target) in enumerate(zip(rows, made, strict=True))
        )
        subprocess.run(["ffmpeg", "-v", "error", "-nostdin", *inputs, *chain.from_iterable(outputs)], check=True)
        return [path.read_bytes() for path in made]


def to_16_bits(samples: np.ndarray) -> np.ndarray:
    """Round as swresample does without dither."""
    if samples.dtype == np.int16:
        return samples
    if samples.dtype == np.int32:
        return (samples >> 16).astype(np.int16)
    return np.clip(np.rint(samples * np.float32(32768)), -32768, 32767).astype(np.int16)
