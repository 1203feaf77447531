"""Caches that are Lance datasets are opened: rows, and windows of frames of videos."""

import itertools
import shutil
import subprocess
import sys
import threading

import pytest
from caches.pet_caches import PETS, change, pets, stored
from media.videos import VIDEOS, make

from touchfs.backend import LanceBackend, LanceVideoFramesBackend
from touchfs.cache import (
    ClassLabel,
    Features,
    LanceCacheMeta,
    Value,
    Video,
    detect_cache_format,
    detect_cache_layout,
    open_cache,
    read_lance_cache_meta,
    read_sharded_cache_meta,
    write_lance_cache,
    write_lance_video_frames_cache,
    write_sharded_arrow_cache,
)
from touchfs.core.errors import NotFoundError

FRAMES = Features({"video": Video(storage="frames"), "label": Value("int32")})


@pytest.fixture
def place(tmp_path):
    write_lance_cache(pets(60), PETS, tmp_path / "cache", batch_size=25)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    """Frames of a video of 50."""
    directory = tmp_path_factory.mktemp("frames")
    video = make(directory, "h264.mp4", *VIDEOS["h264.mp4"], size="32x16", seconds=2)
    write_lance_video_frames_cache([("a", {"video": video, "label": 7})], FRAMES, directory / "cache", workers=1)
    return directory / "cache"


def test_rows(place, tmp_path):
    opened = open_cache(place, PETS)
    assert isinstance(opened.backend, LanceBackend) and isinstance(opened.metadata, LanceCacheMeta)
    assert (opened.num_rows, opened.layout) == (60, "lance-rows")
    assert (opened.metadata.cache_dir, opened.metadata.num_rows) == (place, 60)
    assert opened.metadata.schema_fingerprint == "39cb9288bb800052"
    assert opened.metadata == read_lance_cache_meta(place)
    assert (detect_cache_layout(place), detect_cache_format(place)) == ("lance-rows", "lance")
    assert [opened.backend.get_row(i) for i in range(60)] == [stored(i) for i in range(60)]
    # The same as those of Arrow shards.
    write_sharded_arrow_cache(pets(60), PETS, tmp_path / "arrow")
    assert open_cache(tmp_path / "arrow", PETS).backend.table.to_pylist() == opened.backend.table.to_pylist()


def test_backend_kwargs_of_rows(place):
    """`batch_readahead` only, as in the original tool; others belong to other layouts."""
    opened = open_cache(place, PETS, backend_kwargs={"batch_readahead": 3, "window_length": 16})
    assert sum(len(batch) for batch in opened.backend.iter_batches()) == 60


def test_windows(frames):
    opened = open_cache(frames, FRAMES, backend_kwargs={"window_length": 16, "hop_size": 4, "frame_skip": 1})
    assert isinstance(opened.backend, LanceVideoFramesBackend)
    assert (opened.num_rows, opened.layout) == ((50 - 31) // 4 + 1, "lance-video-frames")
    assert opened.backend.get_row(1)["video"].shape == (16, 16, 32, 3)
    assert opened.metadata is not None
    assert open_cache(frames, FRAMES).num_rows == 50
    assert read_lance_cache_meta(frames).num_rows == 50
    with pytest.raises(ValueError, match="no valid segments: every video has fewer than span=99 frames"):
        open_cache(frames, FRAMES, backend_kwargs={"window_length": 99})


def test_opening_does_not_start_lance(place, frames):
    """Its threads would not survive a fork."""
    script = f"""
import sys
from touchfs.cache import open_cache
open_cache({str(place)!r}, None)
open_cache({str(frames)!r}, None)
print("lance" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


DAMAGES = {
    "fingerprint": (
        {"schema_fingerprint": "0123456789abcdef"},
        "Schema fingerprint mismatch: cache has 0123456789abcdef",
    ),
    "version": ({"cache_format_version": 2}, r"Unsupported cache format version 2 \(expected 1\)"),
    "format": ({"format": "arrow"}, r"Not a Lance cache: .* \(format='arrow'\)"),
    "layout": ({"layout": "x"}, "Unknown cache layout 'x' in "),
    "no layout": ({"layout": None}, "missing required 'layout'"),
    "rows": ({"num_rows": 61}, "Metadata claims 61 rows but the Lance dataset has 60"),
    "no rows": ({"num_rows": None}, "is missing 'num_rows'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_caches_are_named(place, damage):
    """The original checks neither fingerprint nor version of a Lance dataset."""
    members, text = DAMAGES[damage]
    change(place, **members)
    with pytest.raises(ValueError, match=text):
        open_cache(place, PETS)


def test_other_features_and_functions(place, frames, tmp_path):
    with pytest.raises(ValueError, match="Schema fingerprint mismatch"):
        open_cache(place, Features({"label": ClassLabel(num_classes=3)}))
    with pytest.raises(ValueError, match="Schema fingerprint mismatch"):
        open_cache(frames, PETS)
    with pytest.raises(ValueError, match=r"Not an Arrow sharded cache: .* \(format='lance'\)"):
        read_sharded_cache_meta(place)
    with pytest.raises(FileNotFoundError, match="No metadata file at"):
        read_lance_cache_meta(tmp_path)
    shutil.rmtree(place / "_versions")
    with pytest.raises(NotFoundError, match="no version in _versions"):
        open_cache(place, PETS)


def test_readers_run_while_the_cache_is_rebuilt(tmp_path):
    """Each open cache has the rows that its metadata say, and those of one generation."""
    place, features = tmp_path / "cache", Features({"x": Value("int64")})

    def write(generation):
        rows = ((i, {"x": generation * 1000 + i}) for i in range(10 + generation))
        write_lance_cache(rows, features, place)

    write(0)
    problems, seen, done = [], set(), threading.Event()

    def read():
        while not done.is_set():
            try:
                opened = open_cache(place, features)
                found = [row["x"] for row in opened.backend.take(range(opened.num_rows)).to_pylist()]
                assert found == list(range(found[0], found[0] + 10 + found[0] // 1000))
                seen.add(found[0])
            except Exception as error:
                problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for generation in itertools.count(1):
        write(generation)
        if len(seen) > 3 or problems:
            break
    done.set()
    reader.join(60)
    assert problems == []
