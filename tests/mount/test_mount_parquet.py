"""Parquet files in a real mount: what is damaged, replaced or fully indexed. `test_mount_tables` has what is shown."""

import errno
import json
import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pytest
from arrow_tables import JPG, PNG, pictures
from mounts import touchfs
from parquet_tables import write_parquet
from small_disks import refused

from touchfs.source.local import VERIFY_SECONDS

pytestmark = pytest.mark.usefixtures("has_libraries")


def test_a_damaged_file_is_a_text_and_others_are_shown(mount, tmp_path):
    source = tmp_path / "data"
    whole = write_parquet(source / "a.parquet", pictures()).read_bytes()
    (source / "b.parquet").write_bytes(whole[:-9] + b"?" + whole[-8:])
    (source / "c.parquet").write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    top = mount(source).path
    assert "cannot be served" in (top / "shards" / "c" / "ERROR.txt").read_text()
    assert (top / "shards" / "a" / "00000000.jpeg").read_bytes() == JPG


def test_all_is_known_beforehand_after_a_full_index(mount, tmp_path):
    """Sizes and extensions of all cells, and the sizes of rows, are in the catalog."""
    images = [(PNG if i % 2 else JPG) + bytes([i]) * i for i in range(50)]
    path = write_parquet(tmp_path / "t.parquet", pa.table({"image": images, "n": range(50)}), "plain", 20)
    done = touchfs("index", path, "--full")
    assert done.returncode == 0, done.stderr
    shard = mount(path).path / "shards" / "t"
    for i, image in enumerate(images):
        file = shard / f"{i:08d}.{'png' if i % 2 else 'jpg'}"
        assert file.stat().st_size == len(image) and file.read_bytes() == image
        assert os.getxattr(file, "user.touchfs.size") == b"%d" % len(image)


def test_a_file_that_is_replaced_is_stale(mount, tmp_path):
    path = write_parquet(tmp_path / "t.parquet", pictures())
    top = mount(path).path
    assert (top / "shards" / "t" / "00000000.jpeg").read_bytes() == JPG
    write_parquet(tmp_path / "new.parquet", pictures(("more", pa.array(range(7))))).rename(path)
    time.sleep(VERIFY_SECONDS)
    for name in ("00000001.jpg", "00000001.json"):
        assert refused((top / "shards" / "t" / name).read_bytes) == "ESTALE"
    assert touchfs("reload", top).returncode == 0
    assert "more" in json.loads((top / "shards" / "t" / "00000001.json").read_bytes())


def test_a_damaged_page_is_an_error_of_its_rows(mount, tmp_path):
    images = [PNG + random.Random(i).randbytes(5000) for i in range(40)]
    table = pa.table({"image": images, "n": range(40)})
    path = write_parquet(tmp_path / "t.parquet", table, "zstd", 10)
    data = bytearray(path.read_bytes())
    at = data.index(images[25][2000:2100]) if images[25][2000:2100] in data else len(data) * 25 // 40
    data[at - 1000 : at + 1000] = bytes(2000)
    path.write_bytes(data)
    top: Path = mount(path).path
    shown, failed = 0, 0
    for i in range(40):
        try:
            found = (top / "shards" / "t" / f"{i:08d}.png").read_bytes()
            shown += found == images[i]
        except OSError as error:
            assert error.errno == errno.EIO
            failed += 1
    assert shown >= 30 and shown + failed >= 39
