"""A server that begins with the list of its shards: each is indexed when a request looks into it."""

import os
import re
import threading
from contextlib import closing
from http.client import HTTPConnection

import pytest
from s3_server import asked_of_s3, s3_server, upload
from tars import write_tar
from tree_servers import ask, in_this_process, serving
from waiting import wait_until

from touchfs.format.wav import build_header
from touchfs.indexing import index_task, list_dataset, open_dataset


@pytest.fixture
def tars(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in "abc":
        write_tar(tmp_path / "tars" / f"{name}.tar", {f"{name}{i}.txt": f"{name}{i}".encode() for i in range(3)})
    return tmp_path / "tars"


@pytest.fixture
def catalogs(tars):
    """The number of shards that are indexed."""
    return lambda: len(list((tars.parent / "cache" / "touchfs" / "index").glob("*.arrow")))


def listed(port, path):
    """The paths of what is in a directory, by PROPFIND."""
    answer = ask(port, path, "PROPFIND", Depth="1")
    assert answer.status == 207, answer
    return re.findall(r"<D:href>([^<]*)</D:href>", answer.body.decode())[1:]


def walked(port, path):
    """All that is below a directory, as WebDAV shows it: properties of all, and bytes of files."""
    properties = ask(port, path, "PROPFIND", Depth="1").body
    below = listed(port, path)
    files = [(each, (got := ask(port, each)).body, got.headers["ETag"]) for each in below if not each.endswith("/")]
    return [properties, files, [walked(port, each) for each in below if each.endswith("/")]]


def test_what_a_request_indexes(tars, catalogs):
    with serving(tars) as server:
        assert server.line.startswith(f"serving {tars} at http://127.0.0.1:")
        for number, method, path, headers in (
            (0, "GET", "/", {}),
            (0, "PROPFIND", "/", {"Depth": "1"}),
            (0, "GET", "/shards/", {}),
            (0, "PROPFIND", "/shards/", {"Depth": "1"}),
            (0, "PROPFIND", "/shards/b/", {"Depth": "0"}),
            (0, "GET", "/shards/b", {}),
            (0, "HEAD", "/by-key/", {}),
            (0, "GET", "/favicon.ico", {}),
            (1, "GET", "/shards/b/b1.txt", {}),
            (1, "PROPFIND", "/shards/b/", {"Depth": "1"}),
            (2, "PROPFIND", "/segments/a/", {"Depth": "1"}),
            (3, "GET", "/by-key/c1.txt", {}),
        ):
            status = server.ask(path, method, **headers).status
            assert (status < 500, catalogs()) == (True, number), path


def test_files_of_a_sample_wait_for_no_contents(tars, catalogs):
    """Segments are read for those who ask for them."""
    wav, json = build_header(200, 8000) + bytes(200), b'{"segments": [{"start": 0, "end": 0.01}]}'
    write_tar(tars / "d.tar", {"d.wav": wav, "d.json": json})
    with serving(tars) as server:
        assert server.ask("/shards/d/d.wav", "GET").body == wav
        assert catalogs() == 0
        assert server.ask("/segments/d/d/0000.wav", "GET").status == 200
        assert catalogs() == 1
        assert server.ask("/shards/d/d.json", "GET").body == json


def test_answers_before_and_after_all_is_indexed(tars):
    shown = []
    for opened in (list_dataset, open_dataset, list_dataset):
        dataset = opened(str(tars))
        assert dataset.is_indexed == bool(shown)
        with in_this_process(dataset) as port:
            shown.append([walked(port, path) for path in ("/shards/", "/by-key/", "/manifests/")])
    assert shown[0] == shown[1] == shown[2]


def has_noticed_who_is_gone(port):
    """Whether the server has closed its end of each connection of which the client has closed the other one."""
    with open("/proc/net/tcp") as connections:
        ends = [line.split()[1:4:2] for line in connections]
    return [f"0100007F:{port:04X}", "08"] not in ends  # CLOSE_WAIT


def test_a_slow_shard_holds_up_no_other_request(tars, monkeypatch):
    """Clients that wait for it may go away, and are not counted then: each may have two answers open."""
    made, ready, make = [], threading.Event(), index_task.make_catalog

    def slowly(path, *arguments, **options):
        made.append(os.path.basename(path))
        assert path != str(tars / "b.tar") or ready.wait(60)
        return make(path, *arguments, **options)

    monkeypatch.setattr(index_task, "make_catalog", slowly)
    with in_this_process(list_dataset(str(tars)), answers=2) as port:
        try:
            for _ in range(5):
                with closing(HTTPConnection("127.0.0.1", port, timeout=20)) as gone:
                    gone.request("GET", "/shards/b/b1.txt")
                    wait_until(lambda: "b.tar" in made)
                    wait_until(lambda: ask(port, "/shards/a/a1.txt").body == b"a1")
            wait_until(lambda: has_noticed_who_is_gone(port))
            waiting = HTTPConnection("127.0.0.1", port, timeout=60)
            waiting.request("GET", "/shards/b/b1.txt")
            wait_until(lambda: ask(port, "/shards/c/c1.txt").body == b"c1")
        finally:
            ready.set()
        with closing(waiting):
            assert waiting.getresponse().read() == b"b1"
    assert sorted(made) == ["a.tar", "b.tar", "c.tar"]


def test_what_cannot_be_indexed(tars):
    """Damage is found by a look, as are data that have gone since the start."""
    (tars / "b.tar").write_bytes(b"\xff" * 1024)
    with serving(tars) as server:
        (tars / "c.tar").unlink()
        assert [listed(server.port, f"/shards/{name}/") for name in "bc"] == [
            ["/shards/b/ERROR.txt"],
            ["/shards/c/ERROR.txt"],
        ]
        assert server.ask("/shards/a/a1.txt").body == b"a1"


def test_a_look_into_a_bucket(tars, monkeypatch):
    with s3_server(monkeypatch) as client:
        upload(client, tars, "data/train")
        with asked_of_s3() as asked, in_this_process(list_dataset("s3://data/train")) as port:
            assert listed(port, "/shards/") == [f"/shards/{name}/" for name in "abc"]
            assert [call for call in asked if call.endswith(".tar")] == []
            assert ask(port, "/shards/b/b1.txt").body == b"b1"
        assert {call.split()[1] for call in asked if call.endswith(".tar")} == {"train/b.tar"}
