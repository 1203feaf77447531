"""Images of several stores in one batch: this machine, memory, and real HTTP."""

import gzip

import fsspec
import pytest
from interleaved_tars import make_image, make_wds_tar
from item_rows import batch_of, contents, errors, image_row, ranges_of, text_row
from items_http import serving

from touchfs.interleaved.items.materialize import materialize

IMAGES = {f"a.{i}.png": make_image("png", seed=i) for i in range(4)}


@pytest.fixture
def server():
    with serving() as served:
        yield served


@pytest.fixture
def tar(tmp_path):
    return make_wds_tar(tmp_path / "x.tar", IMAGES.items())


def gets(server, path):
    return [headers.get("Range") for method, asked, headers in server.asked if (method, asked) == ("GET", path)]


def test_local_memory_and_http_in_one_batch(tar, server):
    data = tar.read_bytes()
    server.files = {"/d/x.tar": data, "/d/b.png": IMAGES["a.3.png"], "/d/x.tar.gz": gzip.compress(data)}
    fsspec.filesystem("memory").pipe({"/mixed/x.tar": data, "/mixed/b.png": IMAGES["a.2.png"]})
    range_ = ranges_of(tar)["a.1.png"]
    rows = [
        text_row(0, "between"),
        image_row(1, str(tar), "a.1.png", *range_),
        image_row(2, "memory://mixed/x.tar", "a.1.png", *range_),
        image_row(3, f"{server.url}/d/x.tar", "a.1.png", *range_),
        image_row(4, "memory://mixed/b.png"),
        image_row(5, f"{server.url}/d/b.png"),
        image_row(6, "memory://mixed/x.tar", "a.0.png"),
        image_row(7, f"{server.url}/d/x.tar", "a.0.png"),
        image_row(8, f"{server.url}/d/x.tar.gz", "a.1.png", *range_),
        image_row(9, f"{server.url}/d/gone.png"),
        image_row(10, f"{server.url}/d/gone.tar", "m", 0, 5),
        image_row(11, f"{server.url}/d/x.tar", "gone"),
    ]
    found = materialize(batch_of(rows, str(tar)), locations=["memory://mixed", f"{server.url}/d"])
    one = IMAGES["a.1.png"]
    first = IMAGES["a.0.png"]
    assert contents(found) == [
        *(None, one, one, one, IMAGES["a.2.png"], IMAGES["a.3.png"], first, first, one, None, None, None)
    ]
    assert errors(found) == [None] * 9 + [
        "failed to read path",
        "range read error for member 'm'",
        "missing member 'gone'",
    ]


def test_a_range_over_http_is_asked_for_once_and_alone(tar, server):
    server.files = {"/x.tar": tar.read_bytes()}
    offset, size = ranges_of(tar)["a.2.png"]
    rows = [image_row(i, f"{server.url}/x.tar", "a.2.png", offset, size) for i in range(3)]
    found = materialize(batch_of(rows), locations=[server.url])
    assert contents(found) == [IMAGES["a.2.png"]] * 3
    assert sorted(gets(server, "/x.tar")) == ["bytes=0-5", f"bytes={offset}-{offset + size - 1}"]


def test_a_server_without_ranges_gives_the_right_bytes(tar, server):
    """fsspec takes the whole file, which such a server sends, for the range."""
    server.files, server.has_ranges = {"/x.tar": tar.read_bytes()}, False
    rows = [image_row(i, f"{server.url}/x.tar", name, *ranges_of(tar)[name]) for i, name in enumerate(IMAGES)]
    rows += [image_row(8, f"{server.url}/x.tar", "a.0.png"), image_row(9, f"{server.url}/x.tar", "m", 10**6, 5)]
    found = materialize(batch_of(rows), locations=[server.url])
    assert contents(found) == [*IMAGES.values(), IMAGES["a.0.png"], None]
    assert errors(found)[-1] == "empty range read for member 'm'"


@pytest.mark.parametrize("has_ranges", [True, False])
def test_no_reply_over_the_limit_is_read(server, has_ranges):
    server.files, server.has_ranges = {"/large": bytes(10**6)}, has_ranges
    rows = [image_row(0, f"{server.url}/large"), image_row(1, f"{server.url}/large", "m", 0, 2000)]
    rows += [image_row(2, f"{server.url}/large", "m", 0, 10)]
    found = materialize(batch_of(rows), locations=[server.url], max_decoded=1000)
    assert contents(found) == [None, None, bytes(10) if has_ranges else None]


@pytest.mark.parametrize("has_length", [True, False])
def test_a_reply_that_decompresses_to_more_than_the_limit(server, has_length):
    """A client decodes replies, so a small one may be large."""
    server.files = {"/bomb": gzip.compress(bytes(10**7))}
    server.headers = {"Content-Encoding": "gzip"} | ({} if has_length else {"Transfer-Encoding": "chunked"})
    rows = [image_row(0, f"{server.url}/bomb"), image_row(1, f"{server.url}/bomb", "m", 0, 100)]
    found = materialize(batch_of(rows), locations=[server.url], max_decoded=10**6)
    assert contents(found) == [None, None]


def test_a_host_that_does_not_answer(tar, monkeypatch):
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "1")
    rows = [image_row(0, "http://127.0.0.1:9/a.png"), image_row(1, str(tar), "a.0.png")]
    found = materialize(batch_of(rows, str(tar)), locations=["http://127.0.0.1:9/"])
    assert contents(found) == [None, IMAGES["a.0.png"]]
    assert errors(found) == ["failed to read path", None]


def test_options_go_to_their_location_only(server):
    server.files = {"/open/a": b"a", "/closed/b": b"b", "/closed/deep/c": b"c"}
    rows = [image_row(i, server.url + path) for i, path in enumerate(server.files)]
    options = {
        f"{server.url}/closed": {"headers": {"X-Secret": "closed"}},
        f"{server.url}/closed/deep": {"headers": {"X-Secret": "deep"}},
        "http://other.invalid": {"headers": {"X-Secret": "other"}},
    }
    found = materialize(batch_of(rows, storage_options=options), locations=[server.url])
    assert contents(found) == [b"a", b"b", b"c"]
    secrets = {(path, headers.get("X-Secret")) for _, path, headers in server.asked}
    assert secrets == {("/open/a", None), ("/closed/b", "closed"), ("/closed/deep/c", "deep")}


def test_a_redirect_to_another_host_is_not_followed(server):
    with serving() as other:
        other.files = {"/secret": b"secret"}
        server.files = {"/d/real": b"real", "/outside": b"outside"}
        server.redirects = {
            "/d/inside": "/d/real",
            "/d/away": f"{other.url}/secret",
            "/d/up": "/outside",
            "/d/metadata": "http://169.254.169.254/latest/meta-data/",
        }
        paths = ["inside", "away", "up", "metadata"]
        rows = [image_row(i, f"{server.url}/d/{path}") for i, path in enumerate(paths)]
        rows += [image_row(i + 10, f"{server.url}/d/{path}", "m", 0, 4) for i, path in enumerate(paths)]
        options = {f"{server.url}/d": {"headers": {"X-Secret": "s"}}}
        found = materialize(batch_of(rows), [f"{server.url}/d"], options)
        assert contents(found) == [b"real", None, None, None] * 2
        assert other.asked == []
        assert "/outside" not in {path for _, path, _ in server.asked}
