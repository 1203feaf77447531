import hashlib
import json
import logging
import os
import subprocess
import sys
import threading

import lance
import numpy as np
import pytest
from media.videos import VIDEOS, ffmpeg, make, turned
from memory import peak

from touchfs.backend import LanceVideoFramesBackend
from touchfs.caches.writers.video_frames import write_lance_video_frames_cache
from touchfs.core.errors import CorruptVideoError
from touchfs.core.progress import listening
from touchfs.features import ClassLabel, Features, Image, Value, Video, features_fingerprint

FEATURES = Features(video=Video("frames"), label=ClassLabel(["cat", "dog"]))


def write(generator, directory, workers=1, **options):
    return write_lance_video_frames_cache(generator, FEATURES, directory, workers=workers, **options)


def members(directory):
    return json.loads((directory / "_metadata.json").read_text())


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """Videos of 10 frames, and a file that is none."""
    directory = tmp_path_factory.mktemp("videos")
    names = ("h264.mp4", "vp9.webm", "mpeg4.avi", "h264.mkv")
    made = [make(directory, name, *VIDEOS[name], size="96x64", rate=10, seconds=1) for name in names]
    damaged = directory / "damaged.mp4"
    damaged.write_bytes(made[0].read_bytes()[:1000])
    return [*made, damaged]


def test_frames_and_metadata(tmp_path, videos):
    mp4, webm, _, _, damaged = videos
    examples = [
        (7, {"video": damaged, "label": "dog"}),
        ("a", {"video": str(mp4), "label": "cat", "score": np.float32(0.5), "array": np.zeros(3), "tags": ["x"]}),
        (("b", 1), {"video": {"path": webm, "checksum": "sum"}, "label": 1}),
    ]
    meta = write(examples, tmp_path / "c", quality=80, lineage={"from": "test"}, workers=2)
    assert (meta.cache_dir, meta.num_rows) == (tmp_path / "c", 20)
    found = members(tmp_path / "c")
    assert found.pop("features") == FEATURES.to_json()
    shape = {"T": 10, "H": 64, "W": 96}
    assert found == {
        "cache_format_version": 1,
        "format": "lance",
        "layout": "lance-video-frames",
        "schema_fingerprint": features_fingerprint(FEATURES),
        "num_rows": 20,
        "total_rows": 20,
        "n_videos": 2,
        "n_skipped": 1,
        "encoding": "webp",
        "quality": 80,
        "resize": None,
        "video_column": "video",
        "videos": [
            {"id": 0, "key": "a", "path": str(mp4), "checksum": None, **shape, "start_row": 0}
            | {"metadata": {"label": "cat", "score": 0.5, "tags": ["x"]}},
            {"id": 1, "key": "('b', 1)", "path": str(webm), "checksum": "sum", **shape, "start_row": 10}
            | {"metadata": {"label": 1}},
        ],
        "lineage": {"from": "test"},
    }
    table = lance.dataset(tmp_path / "c").to_table()
    assert [str(field.type) for field in table.schema] == ["int32", "int32", "large_binary"]
    assert table["video_id"].to_pylist() == [0] * 10 + [1] * 10
    assert table["frame_idx"].to_pylist() == [*range(10), *range(10)]
    assert sorted(os.listdir(tmp_path)) == ["c", "c.lock"]
    backend = LanceVideoFramesBackend(uri=tmp_path / "c")
    for idx, path in ((3, mp4), (18, webm)):
        row = backend.get_row(idx)
        frame = np.frombuffer(ffmpeg("-i", str(path), "-pix_fmt", "rgb24", "-f", "rawvideo", "-"), np.uint8)
        expected = frame.reshape(10, 64, 96, 3)[row["start_frame"]].astype(int)
        assert row["filename"] == str(path)
        assert np.abs(row["video"][0].mean((0, 1)) - expected.mean((0, 1))).max() < 3


def test_videos_as_bytes_are_listed_by_their_hash(tmp_path, videos):
    data = videos[1].read_bytes()
    examples = [("a", {"video": data}), ("b", {"video": {"bytes": memoryview(data), "extension": "WEBM"}})]
    write(examples, tmp_path / "c")
    digest = hashlib.sha256(data).hexdigest()
    assert [(video["path"], video["checksum"]) for video in members(tmp_path / "c")["videos"]] == [
        (f"{digest}.mp4", digest),
        (f"{digest}.webm", digest),
    ]


def test_many_workers_write_what_one_writes(tmp_path, videos):
    examples = [(i, {"video": videos[i % 4], "label": i}) for i in range(6)]
    tables = []
    for workers in (1, 2):
        write(iter(examples), tmp_path / str(workers), workers=workers)
        tables.append(lance.dataset(tmp_path / str(workers)).to_table())
    assert tables[0] == tables[1]
    assert members(tmp_path / "1") == members(tmp_path / "2")


def test_resize_is_square(tmp_path, videos):
    write([("a", {"video": videos[0]})], tmp_path / "c", resize=16)
    (video,) = members(tmp_path / "c")["videos"]
    assert (video["H"], video["W"]) == (16, 16)
    assert LanceVideoFramesBackend(uri=tmp_path / "c").get_row(0)["video"].shape == (1, 16, 16, 3)


def test_turned_videos_are_stored_upright(tmp_path):
    make(tmp_path, "h264.mp4", *VIDEOS["h264.mp4"], seconds=1)
    write([("a", {"video": turned(tmp_path, 90)})], tmp_path / "c")
    (video,) = members(tmp_path / "c")["videos"]
    assert (video["H"], video["W"]) == (160, 120)


def test_damaged_videos(tmp_path, videos, caplog):
    damaged = videos[4]
    examples = [("good", {"video": videos[0]}), ("bad", {"video": damaged}), ("text", {"video": b"text"})]
    with caplog.at_level(logging.WARNING):
        write(examples, tmp_path / "c")
    assert members(tmp_path / "c")["n_skipped"] == 2
    assert f"skipping {damaged}: " in caplog.text
    with pytest.raises(RuntimeError, match=f"failed on {damaged}: "):
        write(examples, tmp_path / "d", skip_corrupt=False)
    with pytest.raises(CorruptVideoError, match=f"none of the 2 videos can be decoded: failed on {damaged}"):
        write(examples[1:], tmp_path / "d")
    assert sorted(os.listdir(tmp_path)) == ["c", "c.lock"]


def test_errors(tmp_path, videos):
    two = Features(first=Video("frames"), other=Video("frames"), image=Image(), path=Video())
    exactly = r"requires exactly one Video\(storage='frames'\) column or an explicit video_column"
    target = tmp_path / "c"
    for features, column, kind, message in (
        (two, None, ValueError, exactly),
        (Features(n=Value("int8")), None, ValueError, exactly),
        (two, "image", TypeError, r"'image' must be a Video\(storage='frames'\) feature"),
        (two, "path", TypeError, r"'path' must be a Video\(storage='frames'\) feature"),
        (two, "none", ValueError, "no column 'none'"),
    ):
        with pytest.raises(kind, match=message):
            write_lance_video_frames_cache([], features, target, video_column=column)
    text = tmp_path / "a.txt"
    text.write_text("text")
    for value, kind, message in (
        (tmp_path / "missing.mp4", FileNotFoundError, "Video path does not exist or is not a file: "),
        (tmp_path, FileNotFoundError, "Video path does not exist or is not a file: "),
        (text, ValueError, "Unsupported video extension '.txt'. Allowed: "),
        ({"bytes": b"x", "extension": "gif"}, ValueError, "Unsupported video extension '.gif'. Allowed: "),
        ({"checksum": "x"}, TypeError, "Video frame values must contain 'path' or 'bytes'."),
        (5, TypeError, "Video frame values must be path-like or bytes-like."),
        (None, TypeError, "Video frame values must be path-like or bytes-like."),
    ):
        with pytest.raises(kind, match=f"column 'video' of example 0: {message}"):
            write([("bad", {"video": value})], target)
    with pytest.raises(TypeError, match="column 'video' of example 1: "):
        write([("good", {"video": videos[0]}), ("bad", {"video": None})], target)
    with pytest.raises(ValueError, match="Cannot build a lance-video-frames cache from an empty generator"):
        write([], target)
    for options in ({"quality": 101}, {"quality": -1}, {"resize": 0}, {"lineage": {"a": object()}}):
        with pytest.raises((ValueError, TypeError)):
            write([("good", {"video": videos[0]})], target, **options)
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_explicit_column(tmp_path, videos):
    features = Features(first=Video("frames"), other=Video("frames"))
    examples = [("a", {"first": videos[0], "other": "not a video"})]
    write_lance_video_frames_cache(examples, features, tmp_path / "c", video_column="first")
    found = members(tmp_path / "c")
    assert (found["video_column"], found["videos"][0]["metadata"]) == ("first", {"other": "not a video"})


def test_features_may_be_a_plain_dict(tmp_path, videos):
    write_lance_video_frames_cache([("a", {"video": videos[0], "label": 1})], dict(FEATURES), tmp_path / "c")
    assert members(tmp_path / "c")["features"] == FEATURES.to_json()
    with pytest.raises(TypeError, match="Feature 'label' must be a FeatureType, got str"):
        write_lance_video_frames_cache([], {**FEATURES, "label": "int64"}, tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_generator_that_raises_leaves_nothing(tmp_path, videos):
    threads = set()

    def failing():
        threads.add(threading.get_ident())
        for number in range(8):
            yield number, {"video": videos[number % 4]}
        raise KeyError("of the caller")

    with pytest.raises(KeyError, match="of the caller"):
        write(failing(), tmp_path / "c", workers=2)
    assert threads == {threading.get_ident()}
    assert os.listdir(tmp_path) == []


def test_progress(tmp_path, videos):
    heard = []
    with listening(heard.append, 5):
        write([(i, {"video": video}) for i, video in enumerate(videos)], tmp_path / "c")
    assert sum(heard) == 5


def peaks(directory, code, arguments):
    """The peak memory in MB of the code with each of the arguments, with that of the child processes."""
    for number, argument in enumerate(arguments):
        command = (sys.executable, "-c", code, str(directory / f"c{number}"), str(argument))
        done, megabytes = peak(directory, *command)
        assert done.returncode == 0, done.stderr
        yield megabytes


@pytest.mark.soak
def test_memory_does_not_grow_with_the_length_of_a_video(tmp_path):
    """600 frames have 138 MB of pixels."""
    code = """
import sys
from touchfs.features import Features, Video
from touchfs.caches.writers.video_frames import write_lance_video_frames_cache
write_lance_video_frames_cache([(0, {"video": sys.argv[2]})], Features(video=Video("frames")), sys.argv[1], workers=2)
"""
    options = ("-c:v", "mpeg4", "-an")
    videos = [make(tmp_path, f"{seconds}.avi", *options, size="320x240", seconds=seconds) for seconds in (2, 24)]
    short, long = peaks(tmp_path, code, videos)
    assert members(tmp_path / "c1")["num_rows"] == 600
    assert long < short + 60


@pytest.mark.soak
def test_memory_does_not_grow_with_the_size_of_the_frames(tmp_path):
    """Frames of 100 KB, 30 or 300 MB in all, go from the file in which they wait into Lance."""
    code = """
import os, sys
from pathlib import Path
import pyarrow as pa
from touchfs.media.video.webp_frames import WebpFrames
from touchfs.caches.writers.encoded_video import EncodedVideo
from touchfs.caches.writers.lance_file import write_lance
place = Path(sys.argv[1])
place.mkdir()
encoded = EncodedVideo(place)
for _ in range(int(sys.argv[2])):
    encoded.append(WebpFrames(640, 480, [bytearray(os.urandom(100_000)) for _ in range(10)]))
schema = pa.schema({"video_id": pa.int32(), "frame_idx": pa.int32(), "bytes": pa.large_binary()})
write_lance(encoded.batches(0, schema), schema, place)
encoded.close()
"""
    small, large = peaks(tmp_path, code, (30, 300))
    assert lance.dataset(tmp_path / "c1").count_rows() == 3000
    assert large < small + 150


@pytest.mark.parametrize(("module", "extra"), [("PIL", "video"), ("lance", "lance")])
def test_a_missing_extra_is_named(tmp_path, videos, module, extra):
    """The children cannot import it either: a module of that name raises."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / f"{module}.py").write_text("raise ImportError('not installed')\n")
    code = f"""
import sys
from touchfs.core.errors import MissingExtraError
from touchfs.features import Features, Video
from touchfs.caches.writers.video_frames import write_lance_video_frames_cache
try:
    write_lance_video_frames_cache([(1, {{"video": {str(videos[0])!r}}})], Features(video=Video("frames")), sys.argv[1])
except MissingExtraError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": f"{hidden}"}
    target = tmp_path / "c"
    command = [sys.executable, "-c", code, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert f"touchfs-shards[{extra}]" in done.stdout, done
    assert not target.exists()
