"""Segments of 5 s of hour-long recordings in a tar, at random places: FLAC, MP3 and Opus, each read for the first time

    mount     as the files of `segments/`
    library   as `touchfs.open(…).segments()[i]["wav"]`

against ffmpeg seeking in the recording for each segment (`-ss`, `-t`), and soundfile opening it for each segment. All
make a WAV of 16 bits. Then the same mount reads them again at once, from its memory, and another one, which shares only
the scratch store, against segments of an hour of PCM. And segments of PCM against whole members of the same size.

The recordings are speech-like, 48 kHz, mono, in the page cache. The kernel has no page of a file that is read.
"""

import io
import json
import os
import random
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import soundfile
from harness import add, at_least, interleaved, mounted, own_cache_and_state, report, run

import touchfs
from touchfs.dataset.sample import Sample

RATE, HOURS, SECONDS = 48000, 1, 5
# In each round. A segment is read by the mount or by the library, as they share the scratch store.
SLICES, OPENED, COMMANDS, ROUNDS = 100, 10, 5, 5
CODINGS = {"flac": (), "mp3": ("-b:a", "64k"), "opus": ("-b:a", "32k", "-compression_level", "0")}
WANTED = {"flac": 8, "mp3": 8, "opus": 5}
# "On a par" leaves room for noise
PAR, WITHIN_A_TENTH = 0.8, 0.9


def make_recordings(place: Path) -> dict[str, Path]:
    """An hour of bursts of noise and tones, a minute of which repeats, in PCM and each coding."""
    time_ = np.arange(60 * RATE) / RATE
    loudness = np.clip(np.sin(2 * np.pi * 1.3 * time_), 0, 1)
    noise = np.random.default_rng(1).normal(0, 0.1, len(time_))
    minute = loudness * (0.4 * np.sin(2 * np.pi * (200 + 50 * np.sin(time_)) * time_) + 0.3 * noise)
    paths = {coding: place / f"{coding}.{coding}" for coding in ("wav", *CODINGS)}
    with soundfile.SoundFile(paths["wav"], "w", RATE, 1, "PCM_16") as file:
        for _ in range(60 * HOURS):
            file.write(minute)
    soundfile.write(place / "minute.wav", minute, RATE, "PCM_16")
    for coding, options in CODINGS.items():
        if coding == "mp3":  # whose encoder is slow, and whose frames can be repeated
            ffmpeg("-i", place / "minute.wav", *options, place / "minute.mp3")
            ffmpeg("-stream_loop", str(60 * HOURS - 1), "-i", place / "minute.mp3", "-c", "copy", paths[coding])
        else:
            ffmpeg("-i", paths["wav"], *options, paths[coding])
    return paths


def ffmpeg(*arguments: str | Path) -> None:
    subprocess.run(["ffmpeg", "-v", "error", *arguments], check=True, stdout=subprocess.DEVNULL)


def make_tar(path: Path, recordings: dict[str, Path]) -> None:
    """Each recording with segments, and members that are as large as a segment of PCM."""
    with tarfile.open(path, "w") as tar:
        for coding, recording in recordings.items():
            tar.add(recording, recording.name)
            starts = [random.uniform(0, 3600 * HOURS - SECONDS) for _ in range(2 * SLICES * ROUNDS)]
            segments = [{"start": start, "end": start + SECONDS} for start in starts]
            add(tar, f"{coding}.json", json.dumps({"segments": segments}).encode())
        noise = io.BytesIO()
        samples = np.random.default_rng(2).integers(-3000, 3000, SECONDS * RATE, np.int16)
        soundfile.write(noise, samples, RATE, format="WAV")
        for i in range(SLICES * ROUNDS):
            add(tar, f"{i:04d}.wav", noise.getvalue())


def each(count: int, do: Callable[[], object]) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        do()
    return (time.perf_counter() - begin) / count


def by_mount(paths: list[Path]) -> Callable[[], float]:
    """Reads the next ones in each round, and from the start again when all are read."""
    left: list[Path] = []

    def read() -> None:
        data = left.pop().read_bytes()
        assert len(data) == 44 + 2 * SECONDS * RATE

    def measure() -> float:
        if not left:
            left.extend(paths)
        for path in left[-SLICES:]:
            with open(path, "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return each(SLICES, read)

    return measure


def by_library(segments: list[Sample]) -> Callable[[], float]:
    left = list(segments)
    return lambda: each(SLICES, lambda: left.pop()["wav"])


def by_soundfile(path: Path) -> Callable[[], float]:
    def read() -> None:
        with soundfile.SoundFile(path) as file:
            file.seek(int(random.uniform(0, 3600 * HOURS - SECONDS) * file.samplerate))
            samples = file.read(SECONDS * file.samplerate, dtype="int16")
        soundfile.write(io.BytesIO(), samples, file.samplerate, format="WAV")

    return lambda: each(OPENED, read)


def by_command(path: Path) -> Callable[[], float]:
    def read() -> None:
        start = f"{random.uniform(0, 3600 * HOURS - SECONDS):.6f}"
        ffmpeg("-ss", start, "-t", str(SECONDS), "-i", path, "-f", "wav", "-")

    return lambda: each(COMMANDS, read)


def compared(name: str, ours: float, others: dict[str, tuple[float, float | None]]) -> list[tuple[str, str, str]]:
    """The rows of a table: how long we take, and how much longer each other one, with what is wanted of that if any."""
    rows = [(name, f"{ours * 1e3:.2f} ms", "")]
    for other, (took, wanted) in others.items():
        told = f"{took * 1e3:.2f} ms, {took / ours:.2f} times as long"
        rows.append((f"    {other}", told, at_least(took / ours, wanted) if wanted else ""))
    return rows


def first_readings(shard: Path, tar: Path, recordings: dict[str, Path]) -> list[tuple[str, str, str]]:
    rows = []
    segments = touchfs.open(tar).segments()
    for coding in CODINGS:
        directory = shard / coding
        begin = time.perf_counter()
        paths = [directory / f"{i:04d}.wav" for i in range(SLICES * ROUNDS)]
        paths[0].stat()
        rows.append((f"{coding}: the first stat", f"{(time.perf_counter() - begin) * 1e3:,.1f} ms", ""))
        mine = [segment for segment in segments if segment.key == coding][SLICES * ROUNDS :]
        _ = mine[0].duration
        found = interleaved(
            {
                "mount": by_mount(paths),
                "library": by_library(mine),
                "soundfile": by_soundfile(recordings[coding]),
                "ffmpeg": by_command(recordings[coding]),
            },
            ROUNDS,
        )
        others = {"soundfile": (found["soundfile"], PAR), "ffmpeg -ss -t": (found["ffmpeg"], WANTED[coding])}
        for way in ("mount", "library"):
            rows += compared(f"{coding}: {way}", found[way], others)
    return rows


def twice(paths: list[Path]) -> Callable[[], float]:
    """Reads the next ones in each round twice, and returns what the second time takes."""
    left = list(paths)

    def measure() -> float:
        mine = [left.pop() for _ in range(SLICES)]
        by_mount(mine)()
        return by_mount(mine)()

    return measure


def again(
    shard: Path, read: Callable[[list[Path]], Callable[[], float]], wanted: float | None
) -> list[tuple[str, str, str]]:
    paths = {coding: [shard / coding / f"{i:04d}.wav" for i in range(SLICES * ROUNDS)] for coding in ("wav", *CODINGS)}
    for each_ in paths.values():
        each_[0].stat()
    found = interleaved({coding: read(each_) for coding, each_ in paths.items()}, ROUNDS)
    pcm = {"a segment of PCM": (found.pop("wav"), wanted)}
    return [row for coding, took in found.items() for row in compared(f"{coding}: again", took, pcm)]


def of_pcm(mount: Path) -> list[tuple[str, str, str]]:
    segments = [mount / "segments/x/wav" / f"{i:04d}.wav" for i in range(SLICES * ROUNDS)]
    members = [mount / "shards/x" / f"{i:04d}.wav" for i in range(SLICES * ROUNDS)]
    found = interleaved({"segments": by_mount(segments), "members": by_mount(members)}, 2 * ROUNDS)
    return compared("a segment of PCM", found["segments"], {"a whole member": (found["members"], PAR)})


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        place = Path(temporary)
        own_cache_and_state(place)
        recordings = make_recordings(place)
        tar = place / "x.tar"
        make_tar(tar, recordings)
        mount, other = (stack.enter_context(mounted(tar, place / name)).path for name in ("mnt", "other"))
        report("Segments of an hour, read for the first time", first_readings(mount / "segments/x", tar, recordings))
        report("Segments of an hour, read again", again(mount / "segments/x", twice, WITHIN_A_TENTH))
        report("Segments of an hour, read by another mount", again(other / "segments/x", by_mount, None))
        report("Segments of PCM in a tar", of_pcm(mount))


if __name__ == "__main__":
    run(main)
