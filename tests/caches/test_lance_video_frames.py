import io
import json
import pickle
import shutil
import subprocess
import sys

import lance
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from touchfs.backend import LanceVideoFramesBackend
from touchfs.caches.backends.lance_video_frames import reset_worker_state
from touchfs.core.errors import CacheFormatError, ChangedError, FormatError
from touchfs.format.cache_metadata.build import build_metadata
from touchfs.format.cache_metadata.layouts import VideoFramesMetadata, VideoRecord

COUNTS = (10, 5, 3)


def webp(value, size=(8, 6)):
    data = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(data, "WEBP", lossless=True)
    return data.getvalue()


def write(path, counts=COUNTS, metadata=({}, {}, {}), first=0, **changes):
    """A cache whose frame n is of the grey value `first` + n. Ids have a gap, as those of the original tool."""
    path.mkdir()
    ids = [2 * video for video, count in enumerate(counts) for _ in range(count)]
    rows = {
        "video_id": pa.array(ids, pa.int32()),
        "frame_idx": pa.array([frame for count in counts for frame in range(count)], pa.int32()),
        "bytes": pa.array([webp(first + row) for row in range(sum(counts))], pa.large_binary()),
    }
    lance.write_dataset(pa.table(rows), path, max_rows_per_file=7)
    videos = tuple(
        VideoRecord(
            id=2 * video,
            key=f"k{video}",
            path=f"/not/there/{video}.mp4",
            checksum=None,
            frames=count,
            height=6,
            width=8,
            start_row=sum(counts[:video]),
            metadata=metadata[video],
        )
        for video, count in enumerate(counts)
    )
    values = {
        "num_rows": sum(counts),
        "schema_fingerprint": "",
        "n_skipped": 0,
        "encoding": "webp",
        "quality": 65,
        "resize": None,
        "video_column": "video",
        "videos": videos,
    }
    (path / "_metadata.json").write_text(build_metadata(VideoFramesMetadata(**(values | changes))))
    return path


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "c")


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"window_length": 3, "hop_size": 2}, (4, 2, 1)),
        ({"window_length": 3, "frame_skip": 1}, (6, 1, 0)),
        ({"window_length": 3, "frame_skip": 1, "hop_size": 3}, (2, 1, 0)),
        ({"window_length": 2, "min_video_frames": 6}, (9, 0, 0)),
        ({}, COUNTS),
    ],
)
def test_golden_counts(path, options, counts):
    backend = LanceVideoFramesBackend(uri=path, **options)
    copy = pickle.loads(pickle.dumps(backend))
    for each in (backend, copy):
        assert each.num_rows == sum(counts)
        infos = [each.segment_info(idx) for idx in range(each.num_rows)]
        assert [sum(info["video_idx"] == video for info in infos) for video in range(3)] == list(counts)
        assert [each.get_row(idx)["video"][:, 0, 0, 0].tolist() for idx in range(each.num_rows)] == [
            [sum(COUNTS[: info["video_idx"]]) + frame for frame in info["frame_indices"]] for info in infos
        ]


def test_segments(path):
    backend = LanceVideoFramesBackend(uri=path, window_length=3, hop_size=2)
    assert backend.segment_info(1) == {
        "video_idx": 0,
        "filename": "/not/there/0.mp4",
        "start_frame": 2,
        "frame_indices": [2, 3, 4],
    }
    assert backend.segment_filename(4) == "/not/there/1.mp4"
    assert backend.segment_filenames == [f"/not/there/{video}.mp4" for video in (0, 0, 0, 0, 1, 1, 2)]
    assert backend.video_paths == [f"/not/there/{video}.mp4" for video in range(3)]
    assert (backend.num_shards, backend.is_file_backed, backend.prefer_batched_take) == (1, True, False)
    assert backend.metadata["videos"][1]["id"] == 2
    assert backend.cache_dir == path
    for method in (backend.segment_info, backend.segment_filename):
        for idx in (-1, 7):
            with pytest.raises(IndexError):
                method(idx)


def test_metadata_of_videos(tmp_path):
    metadata = ({"label": 1, "video": "no", "mixed": 1}, {"label": None, "mixed": "x"}, {"label": 2.5, "tags": ["a"]})
    backend = LanceVideoFramesBackend(uri=write(tmp_path / "c", metadata=metadata), window_length=3)
    row = backend.get_row(0)
    assert row["video"].shape == (3, 6, 8, 3) and row["video"].dtype == np.uint8
    assert {name: row[name] for name in ("label", "mixed")} == {"label": 1, "mixed": 1}
    table = backend.take([backend.num_rows - 1, 0])
    assert table.schema == backend.schema
    assert table.drop(["video", "filename", "frame_indices"]).to_pylist() == [
        {"video_idx": 2, "start_frame": 0, "sample_idx": 11, "label": 2.5, "mixed": None, "tags": ["a"]},
        {"video_idx": 0, "start_frame": 0, "sample_idx": 0, "label": 1.0, "mixed": "1", "tags": None},
    ]
    assert table["video"].type == pa.fixed_shape_tensor(pa.uint8(), (3, 6, 8, 3))


def test_windows_of_a_take_come_from_one_call(path, monkeypatch):
    backend = LanceVideoFramesBackend(uri=path, window_length=3)
    calls = []
    take = lance.LanceDataset.take

    def counted(self, indices, columns=None):
        calls.append(list(indices))
        return take(self, indices, columns)

    monkeypatch.setattr(lance.LanceDataset, "take", counted)
    backend.take([1, 0, 11, 2])
    assert calls == [[0, 1, 2, 3, 4, 15, 16, 17]]


def test_nothing_of_lance_runs_before_rows_are_read(path):
    """The cache is a Lance dataset too, of a frame a row."""
    code = f"""
import pickle, sys
from touchfs.backend import LanceBackend, LanceVideoFramesBackend, StorageBackend
path = {str(path)!r}
backends = LanceBackend(uri=path), LanceVideoFramesBackend(uri=path, window_length=3)
frames, windows = pickle.loads(pickle.dumps(backends))
assert isinstance(frames, StorageBackend) and isinstance(windows, StorageBackend)
assert (frames.num_rows, frames.num_shards, len(frames.fingerprint)) == (18, 3, 64)
assert (windows.num_rows, windows.segment_info(3)["start_frame"]) == (12, 3)
assert not {{"lance", "pyarrow", "PIL"}} & set(sys.modules)
assert frames.get_row(7)["frame_idx"] == 7
assert windows.get_row(7)["video"].shape == (3, 6, 8, 3)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_workers(path):
    backend = LanceVideoFramesBackend(uri=path)
    first = backend.get_row(0)["video"]
    LanceVideoFramesBackend.worker_init(0)
    reset_worker_state()
    assert (backend.get_row(0)["video"] == first).all()


def test_a_pickle_of_a_cache_that_was_replaced(path, tmp_path):
    backend = LanceVideoFramesBackend(uri=path)
    pickled = pickle.dumps(backend)
    shutil.rmtree(path)
    write(path, first=100)
    with pytest.raises(ChangedError, match="replaced by another one"):
        pickle.loads(pickled).get_row(0)
    assert LanceVideoFramesBackend(uri=path).get_row(0)["video"][0, 0, 0, 0] == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_length": 0}, "window_length must be >= 1, got 0"),
        ({"frame_skip": -1}, "frame_skip must be >= 0, got -1"),
        ({"hop_size": 0}, "hop_size must be >= 1, got 0"),
        ({"window_length": 6, "frame_skip": 1}, "no valid segments: every video has fewer than span=11 frames"),
        ({"min_video_frames": 11}, "no valid segments: every video has fewer than min_video_frames=11 frames"),
    ],
)
def test_impossible_windows(path, options, message):
    with pytest.raises(ValueError, match=message):
        LanceVideoFramesBackend(uri=path, **options)


def test_damaged_caches(tmp_path):
    with pytest.raises(FileNotFoundError, match="No metadata file at"):
        LanceVideoFramesBackend(uri=tmp_path)
    for number, (changes, message) in enumerate(
        [
            ({"videos": ()}, "no videos recorded in"),
            ({"encoding": "png"}, "frames in 'png', not in webp"),
            ({"num_rows": 19}, "it has 18 frames, and its metadata say 19"),
        ]
    ):
        with pytest.raises(CacheFormatError, match=message):
            LanceVideoFramesBackend(uri=write(tmp_path / str(number), **changes))


@pytest.mark.parametrize("members", [{"H": 7}, {"W": 9}, {"start_row": 9}, {"H": 10**4, "W": 10**4, "T": 5}])
def test_planted_metadata(path, members):
    """An error, or other frames of the cache: never more memory than a window may take."""
    metadata = json.loads((path / "_metadata.json").read_text())
    metadata["videos"][1] |= members
    (path / "_metadata.json").write_text(json.dumps(metadata))
    backend = LanceVideoFramesBackend(uri=path, window_length=5)
    if "start_row" in members:
        assert backend.get_row(6)["video"][0, 0, 0, 0] == 9
    else:
        with pytest.raises(FormatError, match=r"a frame has \(8, 6\) pixels|a window has"):
            backend.get_row(6)


@pytest.mark.parametrize("planted", [b"", b"no picture", b"RIFF\x10\0\0\0WEBPVP8 ", "png", "cut"])
def test_a_frame_that_is_no_webp(tmp_path, planted):
    data = io.BytesIO()
    Image.new("RGB", (8, 6)).save(data, "PNG")
    planted = {"png": data.getvalue(), "cut": webp(3)[:-4]}.get(planted, planted)
    path = write(tmp_path / "c")
    shutil.rmtree(path / "data"), shutil.rmtree(path / "_versions"), shutil.rmtree(path / "_transactions")
    frames = [planted] * 18
    rows = {"video_id": pa.array([0] * 18, pa.int32()), "frame_idx": pa.array(range(18), pa.int32()), "bytes": frames}
    lance.write_dataset(pa.table(rows), path)
    with pytest.raises(FormatError, match="a frame cannot be decoded"):
        LanceVideoFramesBackend(uri=path).get_row(0)
