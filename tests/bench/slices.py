"""Slices of long recordings: 1,000 random spans of 5 s of an hour of FLAC, MP3 and Opus, against ffmpeg seeking in the
file for each span (`-ss`, `-t`), and soundfile opening it for each span. All make a WAV of 16 bits.

The recording is speech-like, 44.1 kHz, mono. The index of packets is made once, as a mount keeps it; what that takes is
reported. The pool's child is warm, and one request runs at a time.
"""

import io
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
from harness import at_least, interleaved, report, run

from touchfs.extent import Extent
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.probe import probe
from touchfs.media.slices.render import Rendering, render
from touchfs.source.local import LocalFile

RATE, HOURS, SECONDS = 44100, 1, 5
# In each round
SLICES, COMMANDS, ROUNDS = 200, 10, 5
CODINGS = {
    "FLAC": ("a.flac", ()),
    "MP3": ("a.mp3", ("-b:a", "64k")),
    "Opus": ("a.opus", ("-b:a", "32k")),
}
WANTED = {"FLAC": 8, "MP3": 8, "Opus": 5}
# "On a par" leaves room for noise
PAR = 0.8


def make_recording(path: Path) -> None:
    """An hour of bursts of noise and tones, a minute of which repeats."""
    time_ = np.arange(60 * RATE) / RATE
    loudness = np.clip(np.sin(2 * np.pi * 1.3 * time_), 0, 1)
    noise = np.random.default_rng(1).normal(0, 0.1, len(time_))
    minute = loudness * (0.4 * np.sin(2 * np.pi * (200 + 50 * np.sin(time_)) * time_) + 0.3 * noise)
    with soundfile.SoundFile(path, "w", RATE, 1, "PCM_16") as file:
        for _ in range(60 * HOURS):
            file.write(minute)


def starts(count: int) -> list[float]:
    return [random.uniform(0, 3600 * HOURS - SECONDS) for _ in range(count)]


def by_touchfs(content: Extent, info: MediaInfo, pool: DecodePool) -> Callable[[], float]:
    def measure() -> float:
        begin = time.perf_counter()
        for start in starts(SLICES):
            data = render(content, info, int(start * info.rate), SECONDS * info.rate, pool, Rendering())
            assert len(data) == 44 + 2 * SECONDS * info.rate
        return (time.perf_counter() - begin) / SLICES

    return measure


def by_soundfile(path: Path) -> Callable[[], float]:
    def measure() -> float:
        begin = time.perf_counter()
        for start in starts(SLICES):
            with soundfile.SoundFile(path) as file:
                file.seek(int(start * file.samplerate))
                samples = file.read(SECONDS * file.samplerate, dtype="int16")
            soundfile.write(io.BytesIO(), samples, file.samplerate, format="WAV")
        return (time.perf_counter() - begin) / SLICES

    return measure


def by_command(path: Path) -> Callable[[], float]:
    def measure() -> float:
        begin = time.perf_counter()
        for start in starts(COMMANDS):
            command = ["ffmpeg", "-v", "error", "-ss", f"{start:.6f}", "-t", str(SECONDS), "-i", path, "-f", "wav", "-"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        return (time.perf_counter() - begin) / COMMANDS

    return measure


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as place, DecodePool(children=1) as pool:
        source = Path(place, "source.wav")
        make_recording(source)
        for coding, (name, options) in CODINGS.items():
            path = Path(place, name)
            subprocess.run(["ffmpeg", "-v", "error", "-i", source, *options, path], check=True)
            content = Extent(LocalFile(str(path)), 0, path.stat().st_size)
            begin = time.perf_counter()
            info = probe(content, pool)
            probing = time.perf_counter() - begin
            contestants = {
                "touchfs": by_touchfs(content, info, pool),
                "soundfile": by_soundfile(path),
                "ffmpeg": by_command(path),
            }
            found = interleaved(contestants, ROUNDS)
            ours = found["touchfs"]
            rows += [
                (f"{coding}: probe, once", f"{probing * 1e3:,.1f} ms, {len(info.to_bytes()):,} bytes kept", ""),
                (f"{coding}: a slice of {SECONDS} s", f"{ours * 1e3:.2f} ms", ""),
                (
                    f"{coding}: against ffmpeg",
                    f"{found['ffmpeg'] / ours:.1f} times as fast",
                    at_least(found["ffmpeg"] / ours, WANTED[coding]),
                ),
                (
                    f"{coding}: against soundfile",
                    f"{found['soundfile'] / ours:.2f} times as fast",
                    at_least(found["soundfile"] / ours, PAR),
                ),
            ]
    report("Slices of an hour", rows)


if __name__ == "__main__":
    run(main)
