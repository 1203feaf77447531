"""Interleaved Parquet files in a real mount: cells as files, images elsewhere, and iterators."""

import errno
import hashlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
from interleaved_tars import make_image, make_tiff, make_wds_tar
from item_rows import image_row, ranges_of, text_row
from items_http import serving
from mint_documents import frames_of, is_same_image, write_items
from mounts import touchfs

pytestmark = pytest.mark.usefixtures("has_libraries")

PNG, JPG = make_image("png", (400, 300), 1), make_image("jpg", (400, 300), 2)
METADATA = {"sample_id": "s", "position": -1, "modality": "metadata"}


def test_cells_are_files(mount, tmp_path):
    rows = []
    for i in range(24):
        own = {"sample_id": f"s{i}"}
        rows += [
            METADATA | own | {"url": f"https://e.org/{i}"},
            text_row(0, f"text {i}") | own,
            image_row(1, content_type="image/png", binary_content=PNG + bytes([i]), source_ref=None) | own,
            image_row(4, content_type=None, binary_content=JPG + bytes([i]), source_ref=None) | own,
        ]
    data = tmp_path / "data"
    data.mkdir()
    write_items(data / "plain.parquet", rows, row_group_size=20, compression="none", use_dictionary=False)
    write_items(data / "snappy.parquet", rows, row_group_size=20)
    top = mount(data, "--workers", 2).path
    view = top / "interleaved"
    for layout, i in product(("plain", "snappy"), (0, 17, 23)):
        own = view / layout / f"s{i}"
        assert sorted(os.listdir(own)) == ["000.txt", "001.png", "004.jpg", "metadata.json", "sample.json"]
        assert (own / "000.txt").read_text() == f"text {i}"
        assert (own / "001.png").read_bytes() == PNG + bytes([i])
        assert (own / "004.jpg").read_bytes() == JPG + bytes([i])
        assert os.stat(own / "004.jpg").st_size == len(JPG) + 1
        assert json.loads((own / "metadata.json").read_text())["url"] == f"https://e.org/{i}"
        assert len(json.loads((own / "sample.json").read_text())) == 4
    plain = sorted(path for path in (view / "plain").rglob("*") if path.is_file())
    snappy = [view / "snappy" / path.relative_to(view / "plain") for path in plain]
    with ThreadPoolExecutor(8) as pool:
        sums = list(pool.map(lambda path: hashlib.md5(path.read_bytes()).digest(), plain + snappy))
    assert len(plain) == len(set(sums)) == 120 and sums[:120] == sums[120:]
    iterator = top / ".touchfs" / "iterators" / "i"
    iterator.mkdir()
    (iterator / "spec").write_text(json.dumps({"select": "interleaved/snappy", "where": "url == 'https://e.org/17'"}))
    assert (iterator / "next").read_text().strip() == str(view / "snappy" / "s17" / "000.txt")
    assert sorted(os.listdir(view)) == ["plain", "snappy"] and len(os.listdir(top / "shards" / "plain")) > 0


def test_images_in_other_files(mount, tmp_path):
    data = tmp_path / "data"
    tiff = make_tiff(3)
    tar = make_wds_tar(data / "t" / "t.tar", [("a.png", PNG), ("b.tiff", tiff)])
    ranges = ranges_of(tar)
    for name in ("gone.jpg", "replaced.jpg"):
        (data / name).write_bytes(JPG)
    rows = [
        image_row(0, "t/t.tar", "a.png", *ranges["a.png"]),
        image_row(1, "t/t.tar", "a.png"),
        image_row(2, "t/t.tar", "b.tiff", *ranges["b.tiff"], 2, content_type="image/tiff"),
        image_row(3, "gone.jpg", content_type="image/jpeg"),
        image_row(4, "/etc/passwd"),
        image_row(5, "replaced.jpg", content_type="image/jpeg"),
    ]
    write_items(data / "p.parquet", rows)
    top = mount(data / "p.parquet").path
    own = top / "interleaved" / "p" / "s"
    assert (own / "000.png").read_bytes() == (own / "001.png").read_bytes() == PNG
    assert is_same_image((own / "002.tiff").read_bytes(), frames_of(tiff)[2])
    assert os.stat(own / "003.jpg").st_size == len(JPG)
    (data / "gone.jpg").unlink()
    os.replace(write_file(data / "new.jpg", JPG[::-1]), data / "replaced.jpg")
    unreadable = {"004.png": "--allow-location", "003.jpg": "gone.jpg", "005.jpg": "replaced.jpg: was replaced"}
    for name, reason in unreadable.items():
        with pytest.raises(OSError) as caught:
            (own / name).read_bytes()
        assert caught.value.errno == errno.EIO
        assert reason in (top / ".touchfs" / "errors").read_text()
    assert (own / "000.png").read_bytes() == PNG


def write_file(path, data):
    path.write_bytes(data)
    return path


def test_images_of_a_server(mount, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    with serving() as served:
        served.files |= {"/pub/a.png": PNG, "/pub/b.png": b"before" + JPG, "/secret": b"secret"}
        served.redirects["/pub/out.png"] = f"{served.url}/secret"
        places = ["pub/a.png", "secret", "pub/out.png", "pub/missing.png"]
        rows = [image_row(i, f"{served.url}/{place}") for i, place in enumerate(places)]
        rows.append(image_row(9, f"{served.url}/pub/b.png", None, 6, len(JPG)))
        write_items(tmp_path / "p.parquet", rows)
        top = mount(tmp_path / "p.parquet", "--allow-location", f"{served.url}/pub").path
        own = top / "interleaved" / "p" / "s"
        assert not served.asked  # nothing is fetched before it is read
        assert sorted(os.listdir(own)) == [*(f"{i:03d}.png" for i in (0, 1, 2, 3, 9)), "sample.json"]
        assert os.stat(own / "009.png").st_size == len(JPG)
        assert not served.asked  # its locator has the size
        assert (own / "009.png").read_bytes() == JPG
        assert (own / "000.png").read_bytes() == PNG
        asked = len(served.asked)
        assert (own / "000.png").read_bytes() == PNG and len(served.asked) == asked
        for name in ("001.png", "002.png", "003.png"):
            with pytest.raises(OSError) as caught:
                (own / name).read_bytes()
            assert caught.value.errno == errno.EIO
        assert "/secret" not in {path for _, path, _ in served.asked}
        assert "missing.png" in (top / ".touchfs" / "errors").read_text()


def test_a_server_that_hangs_keeps_nobody_else_waiting(mount, tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        write_items(tmp_path / "p.parquet", [image_row(0, f"{url}/a.png", None, 0, 10), text_row(1, "fine")])
        top = mount(tmp_path / "p.parquet", "--allow-location", url, "--workers", 1, "--timeout", 10).path
        own = top / "interleaved" / "p" / "s"
        waiting = threading.Thread(target=lambda: _read(own / "000.png"), daemon=True)
        waiting.start()
        connection, _ = server.accept()
        assert (own / "001.txt").read_text() == "fine"
        assert waiting.is_alive()
        connection.close()
        server.close()
        waiting.join(30)
        assert not waiting.is_alive()


def _read(path):
    try:
        return path.read_bytes()
    except OSError as error:
        return error


def test_the_commands_know_interleaved_parquet(tmp_path):
    write_items(tmp_path / "p.parquet", [text_row(0, "fine"), image_row(1, "/etc/passwd"), image_row(2, "gone.jpg")])
    info = touchfs("info", "--strict", tmp_path / "p.parquet")
    assert info.returncode == 1
    assert "interleaved:    1 shard, 1 sample, 1 damaged" in info.stdout
    assert "interleaved/p/ERROR.txt" in info.stdout
    listed = touchfs("ls", "--on-error", "warn", f"{tmp_path}/p.parquet:interleaved/p/s")
    assert listed.stdout.split() == ["000.txt", "errors.json", "sample.json"], listed.stderr
    assert touchfs("info", "--strict", "--on-error", "warn", tmp_path / "p.parquet").returncode == 0
    assert touchfs("ls", "--allow-location", "file:///etc", tmp_path / "p.parquet").returncode == 2
