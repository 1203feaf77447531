"""Each optional package is named where it is missing, and nothing needs it before."""

import subprocess
import sys

from touchfs.cache import Features, Image, Value, write_sharded_arrow_cache

ALL = {"pyarrow", "lance", "PIL", "av"}
HEAD = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
from touchfs.cache import *
from touchfs.core.errors import MissingExtraError
place = {place!r}
features = Features.from_json({{"x": {{"type": "Value", "dtype": "int64"}}, "image": {{"type": "Image"}}}})
rows = [(0, {{"x": 1, "image": b"image"}})]
frames = Features({{"video": Video("frames")}})
def attempt(function, *arguments):
    try:
        function(*arguments)
    except MissingExtraError as error:
        print(error)
"""


def run(tmp_path, missing, *lines):
    script = HEAD.format(missing=sorted(missing), place=str(tmp_path / "cache")) + "\n".join(lines)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_without_pyarrow(tmp_path):
    rows = [(0, {"x": 1, "image": b"image"})]
    write_sharded_arrow_cache(rows, Features({"x": Value("int64"), "image": Image()}), tmp_path / "cache")
    lines = run(
        tmp_path,
        ALL,
        "attempt(features.to_arrow_schema)",
        "attempt(open_cache, place, features)",
        "attempt(write_sharded_arrow_cache, rows, features, place + '2')",
        "attempt(write_lance_cache, rows, features, place + '2')",
        "attempt(read_shard, place + '2')",
        "read_sharded_cache_meta(place)",
        "print(len(features.fingerprint_data()) > 0)",
    )
    assert len(lines) == 6 and all("pip install 'touchfs-shards[" in line for line in lines[:5]) and lines[5] == "True"
    assert all("touchfs-shards[arrow]" in line for line in lines[:2]) and not (tmp_path / "cache2").exists()


def test_without_lance(tmp_path):
    (line,) = run(
        tmp_path,
        {"lance"},
        "write_sharded_arrow_cache(rows, features, place)",
        "open_cache(place, features).backend.get_row(0)",
        "attempt(write_lance_cache, rows, features, place + '2')",
    )
    assert "touchfs-shards[lance]" in line


def test_without_video(tmp_path):
    (line,) = run(
        tmp_path,
        {"PIL", "av"},
        "write_sharded_arrow_cache(rows, features, place)",  # bytes of images need no decoder
        "import numpy",
        "attempt(Image().encode, numpy.zeros((2, 2), 'u1'))",
    )
    assert line == "encoding images needs Pillow: pip install 'touchfs-shards[video]'"
