"""Videos in many codings, made by ffmpeg, and what ffmpeg shows of them."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from variants import with_variants

SECONDS = 12
SIZE = "160x120"
RATE = 25
X264 = ("-c:v", "libx264", "-preset", "veryfast", "-g", "50", "-bf", "3")
AAC = ("-c:a", "aac", "-aac_pns", "0")  # without noise, which no two decodes share
VP9 = ("-c:v", "libvpx-vp9", "-b:v", "200k", "-cpu-used", "8", "-deadline", "realtime", "-g", "60")
VP8 = ("-c:v", "libvpx", "-b:v", "200k", "-cpu-used", "8", "-auto-alt-ref", "1", "-lag-in-frames", "16", "-g", "60")
# name and options of ffmpeg; those of the sound last
VIDEOS = {
    "h264.mp4": (*X264, *AAC),
    "fragmented.mp4": (*X264, *AAC, "-movflags", "+frag_keyframe+empty_moov"),
    "open.mp4": (*X264, "-x264-params", "open-gop=1", "-an"),
    "h264.mkv": (*X264, "-c:a", "libvorbis"),
    "hevc.mkv": (
        "-c:v",
        "libx265",
        "-preset",
        "ultrafast",
        "-x265-params",
        "log-level=none",
        "-g",
        "50",
        "-c:a",
        "flac",
    ),
    "vp9.webm": (*VP9, "-c:a", "libopus"),
    "vp8.webm": (*VP8, "-c:a", "libvorbis"),
    "av1.mkv": ("-c:v", "libaom-av1", "-cpu-used", "8", "-usage", "realtime", "-g", "50", "-c:a", "libopus"),
    "mpeg4.avi": ("-c:v", "mpeg4", "-g", "30", "-c:a", "pcm_s16le"),
    "reordered.avi": ("-c:v", "mpeg4", "-bf", "2", "-g", "30", "-c:a", "libmp3lame"),
    "mpeg2.mkv": ("-c:v", "mpeg2video", "-bf", "2", "-g", "25", "-c:a", "mp2"),
    "mjpeg.mov": ("-c:v", "mjpeg", "-c:a", "pcm_s16le"),
    "mjpeg.avi": ("-c:v", "mjpeg", "-an"),
    "theora.mkv": ("-c:v", "libtheora", "-c:a", "libvorbis"),
    "ffv1.mkv": ("-c:v", "ffv1", "-c:a", "flac"),
    "prores.mov": ("-c:v", "prores", "-c:a", "pcm_s24le"),
    "ntsc.mp4": (*X264, "-r", "30000/1001", *AAC),
}


# Those whose coding and container another one has, too.
ALIKE = ("h264.mkv", "mjpeg.avi", "ntsc.mp4", "open.mp4")
OFTEN = [name for name in VIDEOS if name not in ALIKE]


def some(names: Iterable[str]) -> list[Any]:
    """For `parametrize`: those that are like another one are variants."""
    return with_variants(names, lambda name: name not in ALIKE)


def make(
    directory: Path, name: str, *options: str, size: str = SIZE, rate: float = RATE, seconds: int = SECONDS
) -> Path:
    target = directory / name
    if not target.exists():
        shutil.copyfile(made_once(directory, name, options or VIDEOS[name], size, rate, seconds), target)
    return target


def make_all(directory: Path, names: Iterable[str]) -> None:
    """What `make` would make of each of VIDEOS. One ffmpeg makes all that there are not yet."""
    paths = {place_of_all(directory, name, VIDEOS[name]): VIDEOS[name] for name in names}
    missing = {path: options for path, options in paths.items() if not path.exists()}
    if missing:
        code(missing)


def made_once(directory: Path, name: str, options: Sequence[str], size: str, rate: float, seconds: int) -> Path:
    """A file for all tests of a run, in all its processes: to code a video takes a second."""
    path = place_of_all(directory, name, options, size, rate, seconds)
    if not path.exists():
        code({path: options}, size, rate, seconds)
    return path


def place_of_all(
    directory: Path, name: str, options: Sequence[str], size: str = SIZE, rate: float = RATE, seconds: int = SECONDS
) -> Path:
    asked = repr((options, size, rate, seconds))
    shared = directory.parent.parent if directory.parent.name.startswith("popen-") else directory.parent
    return shared / "videos-of-all-tests" / f"{hashlib.sha256(asked.encode()).hexdigest()[:16]}-{name}"


def code(paths: Mapping[Path, Sequence[str]], size: str = SIZE, rate: float = RATE, seconds: int = SECONDS) -> None:
    own = {path: path.with_name(f"{os.getpid()}-{path.name}") for path in paths}
    for path in paths:
        path.parent.mkdir(exist_ok=True)
    pictures = ("-f", "lavfi", "-i", f"testsrc2=duration={seconds}:size={size}:rate={rate}")
    sound = ("-f", "lavfi", "-i", f"aevalsrc=sin(2*PI*t*(300+40*t))/2:s=44100:d={seconds}")
    outputs = ((*options, "-threads", "1", str(own[path])) for path, options in paths.items())
    ffmpeg(*pictures, *sound, *chain.from_iterable(outputs))
    for path in paths:
        own[path].rename(path)


def variable(directory: Path) -> Path:
    """Frames of two lengths."""
    options = ("-vf", r"select=not(lt(mod(n\,7)\,2))", "-vsync", "vfr", *X264, *AAC)
    return make(directory, "variable.mp4", *options)


def turned(directory: Path, degrees: int) -> Path:
    target = directory / f"turned-{degrees}.mp4"
    source = make(directory, "h264.mp4")
    if not target.exists():
        ffmpeg("-i", str(source), "-c", "copy", "-metadata:s:v", f"rotate={degrees}", str(target))
    return target


def ffmpeg(*arguments: str) -> bytes:
    return subprocess.run(["ffmpeg", "-v", "error", "-y", *arguments], capture_output=True, check=True).stdout


def hashes(*arguments: str) -> list[str]:
    """The hashes of the frames that ffmpeg shows."""
    return parsed_hashes(ffmpeg(*arguments, "-map", "0:v:0", "-f", "framemd5", "-").decode())


def hashes_of_files(whole: Path, *copies: Path) -> list[list[str]]:
    """The hashes of all frames of a file, and of those that ffmpeg shows of its copies. One process decodes all."""
    inputs, outputs = [], []
    for number, path in enumerate((whole, *copies)):
        inputs += ["-i", str(path)]
        outputs += ["-map", f"{number}:v:0", *(("-fps_mode", "passthrough") if path == whole else ())]
        outputs += ["-f", "framemd5", f"{path}.md5"]
    ffmpeg(*inputs, *outputs)
    return [parsed_hashes(Path(f"{path}.md5").read_text()) for path in (whole, *copies)]


def parsed_hashes(text: str) -> list[str]:
    return [line.split(",")[-1].strip() for line in text.splitlines() if not line.startswith("#")]


def frame_times(path: Path) -> list[float]:
    """The times of frames, as ffprobe decodes them."""
    entries = ("-select_streams", "v:0", "-show_entries", "frame=best_effort_timestamp_time", "-of", "csv=p=0")
    text = subprocess.run(["ffprobe", "-v", "error", *entries, path], capture_output=True, check=True, text=True).stdout
    return sorted(float(line.strip(",")) for line in text.split())
