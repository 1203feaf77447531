"""`ls -l` of 1,000 segments of 5 s of an hour of video: what their MP4 files cost, and their frames.

The video has 1280 × 720 pixels and 25 frames a second, a key frame every 2 s, in an MP4 and a Matroska file in a tar. A
stat of the first MP4 describes the video; that of each other one builds its tables. A stat of a frame renders it and
those that are decoded with it. ffmpeg copies each segment, or writes its frames as JPEG files, seeking in the video.
"""

import json
import random
import subprocess
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

from harness import add, mounted, own_cache_and_state, report, run, seconds_of

MINUTES, SECONDS, SEGMENTS = 60, 5, 1000
# Of frames, and of ffmpeg, which take long
SOME = 20


def make_video(place: Path) -> dict[str, Path]:
    minute, paths = place / "minute.mp4", {kind: place / f"{kind}.{kind}" for kind in ("mp4", "mkv")}
    picture = "testsrc2=duration=60:size=1280x720:rate=25,noise=alls=12:allf=t"
    coding = ("-c:v", "libx264", "-preset", "ultrafast", "-g", "50", "-b:v", "2M", "-c:a", "aac")
    ffmpeg("-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", "sine=duration=60", *coding, minute)
    for path in paths.values():
        ffmpeg("-stream_loop", str(MINUTES - 1), "-i", minute, "-c", "copy", path)
    return paths


def ffmpeg(*arguments: str | Path) -> None:
    subprocess.run(["ffmpeg", "-v", "error", "-y", *arguments], check=True)


def make_tar(path: Path, videos: dict[str, Path], starts: list[float]) -> None:
    with tarfile.open(path, "w") as tar:
        for kind, video in videos.items():
            tar.add(video, video.name)
            data = json.dumps({"segments": [{"start": start, "end": start + SECONDS} for start in starts]}).encode()
            add(tar, f"{kind}.json", data)


def stats(paths: list[Path]) -> float:
    return seconds_of(lambda: [path.stat() for path in paths])


def rows(
    kind: str, shard: Path, again: Path, video: Path, starts: list[float], place: Path
) -> list[tuple[str, str, str]]:
    directory = shard / kind
    movies = [directory / f"{number:04d}.mp4" for number in range(SEGMENTS)]
    first = stats(movies[:1])
    others = stats(movies[1:])
    later = stats([again / kind / movie.name for movie in movies])
    reads = seconds_of(lambda: [movie.read_bytes() for movie in movies])
    copy = place / "copy.mp4"
    copies = seconds_of(
        lambda: [
            ffmpeg("-ss", f"{start}", "-t", str(SECONDS), "-i", video, "-c", "copy", copy) for start in starts[:SOME]
        ]
    )
    folders = [directory / f"{number:04d}" / "frames" for number in range(SOME)]
    names: list[list[Path]] = []
    listing = seconds_of(lambda: names.extend(sorted(folder.iterdir()) for folder in folders))
    frames = seconds_of(lambda: [stats(paths) for paths in names])
    frames_again = stats([again / kind / path.relative_to(directory) for paths in names for path in paths])
    few = [directory / f"{number:04d}" / "frames,fps=1" for number in range(SOME)]
    at_one = seconds_of(lambda: [stats(list(folder.iterdir())) for folder in few])
    (place / "jpegs").mkdir(exist_ok=True)
    jpegs = seconds_of(
        lambda: [
            ffmpeg("-ss", f"{start}", "-t", str(SECONDS), "-i", video, "-q:v", "3", place / "jpegs/%06d.jpg")
            for start in starts[:SOME]
        ]
    )
    scale = SEGMENTS / SOME
    return [
        (f"{kind}: stat of the first MP4", f"{first:.2f} s", ""),
        (f"{kind}: stat of {SEGMENTS - 1} others", f"{others:.2f} s", ""),
        ("    by another mount, which finds the video described", f"{later:.2f} s", ""),
        ("    reading them", f"{reads:.2f} s", ""),
        ("    ffmpeg -ss -t -c copy", f"{copies * scale:.0f} s", ""),
        (f"{kind}: listing of all frames of {SEGMENTS} segments", f"{listing * scale:.1f} s", ""),
        ("    stat of each frame", f"{frames * scale:,.0f} s", ""),
        ("    by another mount, which finds them rendered", f"{frames_again * scale:,.0f} s", ""),
        ("    with fps=1", f"{at_one * scale:,.0f} s", ""),
        ("    ffmpeg -ss -t to JPEG files", f"{jpegs * scale:,.0f} s", ""),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        place = Path(temporary)
        own_cache_and_state(place)
        chooser = random.Random(1)
        starts = [round(chooser.uniform(0, 60 * MINUTES - SECONDS), 3) for _ in range(SEGMENTS)]
        videos = make_video(place)
        tar = place / "x.tar"
        make_tar(tar, videos, starts)
        shards = [stack.enter_context(mounted(tar, place / name)).path / "segments/x" for name in ("mnt", "other")]
        for kind, video in videos.items():
            report(f"Segments of an hour of video, {kind}", rows(kind, *shards, video, starts, place))


if __name__ == "__main__":
    run(main)
