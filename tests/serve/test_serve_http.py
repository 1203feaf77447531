"""Files and listings over HTTP, with clients that people use."""

import json
import os
import re
import subprocess
from email import message_from_bytes
from pathlib import Path
from urllib.parse import quote

import fsspec
import pytest
from command import TOUCHFS
from range_server import range_server
from tars import write_tar
from tree_servers import HOSTILE, serving

WAV = "/shards/000000000/talks/monday.wav"
LINK = re.compile(r'href="([^"]*)"')


@pytest.fixture(scope="module")
def monday(speech):
    return subprocess.run([TOUCHFS, "cat", f"{speech}:{WAV}"], check=True, capture_output=True).stdout


def test_each_file_has_the_bytes_that_cp_copies(speech, served, tmp_path):
    """Also those of `by-key/`, which are links in the tree."""
    subprocess.run([TOUCHFS, "cp", "-r", f"{speech}:", tmp_path / "copy"], check=True)
    found = {}
    directories = ["/"]
    while directories:
        for child in json.loads(served.ask(directories.pop(), Accept="application/json").body):
            if child["type"] == "directory":
                directories.append(child["url"])
            else:
                body = served.ask(child["url"]).body
                assert len(body) == child["size"], child
                found[child["url"]] = body
    copied = {}
    for top, _, names in os.walk(tmp_path / "copy", followlinks=True):
        for name in names:
            path = Path(top, name)
            copied[quote("/" + os.fspath(path.relative_to(tmp_path / "copy")))] = path.read_bytes()
    assert found == copied


def test_what_is_named_and_not_listed(speech, served):
    """A span of a recording, and segments merged by a plan."""
    for path in ("slices/0.25-1/000000000/talks/monday.wav", "merged/max=30,gap=0.5/000000000/numbers/0000.wav"):
        wanted = subprocess.run([TOUCHFS, "cat", f"{speech}:{path}"], check=True, capture_output=True).stdout
        assert served.ask("/" + path).body == wanted


def test_data_of_another_store(tmp_path):
    """The query of its URL, which may be a signature, is shown to nobody. A version that is no longer there is gone."""
    data = write_tar(tmp_path / "d.tar", {"a.txt": b"text" * 1000000}).read_bytes()
    with range_server() as store:
        url = store.put("/d.tar", data) + "?signature=s3cret"
        with serving(url, "--scratch-dir", tmp_path / "scratch", "--revalidate", "0") as server:
            assert "s3cret" not in server.line
            assert server.ask("/shards/d/a.txt", Range="bytes=0-5").body == b"textte"
            store.put("/d.tar", data.replace(b"text", b"TEXT"), '"2"')
            got = server.ask("/shards/d/a.txt", Range="bytes=3000000-3000003")
            assert (got.status, b"TEXT" in got.body, b"s3cret" in got.body) == (410, False, False)


def test_ranges(served, monday):
    part = served.ask(WAV, Range="bytes=10-19")
    assert (part.status, part.body) == (206, monday[10:20])
    assert part.headers["Content-Range"] == f"bytes 10-19/{len(monday)}"
    assert served.ask(WAV, Range="bytes=-5").body == monday[-5:]
    beyond = served.ask(WAV, Range="bytes=99999999-")
    assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{len(monday)}")
    assert served.ask(WAV, Range="bytes=5-2").body == monday


def test_several_ranges_are_parts_of_one_answer(served, monday):
    got = served.ask(WAV, Range="bytes=0-3,100-199,-8")
    assert got.status == 206
    message = message_from_bytes(f"Content-Type: {got.headers['Content-Type']}\r\n\r\n".encode() + got.body)
    parts = [(part["Content-Range"], part.get_payload(decode=True)) for part in message.get_payload()]
    size = len(monday)
    assert parts == [
        (f"bytes 0-3/{size}", monday[:4]),
        (f"bytes 100-199/{size}", monday[100:200]),
        (f"bytes {size - 8}-{size - 1}/{size}", monday[-8:]),
    ]


def test_conditions_on_the_version(served, monday):
    etag = served.ask(WAV, "HEAD").headers["ETag"]
    assert (served.ask(WAV, If_None_Match=etag).status, served.ask(WAV, If_None_Match='"x"').status) == (304, 200)
    assert (served.ask(WAV, If_Match='"x"').status, served.ask(WAV, If_Match=etag).status) == (412, 200)
    assert served.ask(WAV, Range="bytes=0-1", If_Range=etag).body == monday[:2]
    assert served.ask(WAV, Range="bytes=0-1", If_Range='"x"').body == monday
    assert served.ask("/shards/000000000/talks/tuesday.wav").headers["ETag"] != etag


def test_head_has_the_headers_of_get(served, monday):
    head, got = served.ask(WAV, "HEAD"), served.ask(WAV)
    assert (head.body, got.body) == (b"", monday)
    assert {**head.headers, "Date": ""} == {**got.headers, "Date": ""}
    assert head.headers["Content-Type"] in ("audio/x-wav", "audio/wav", "audio/vnd.wave")


def test_what_is_not_there(served):
    assert served.ask("/nothing").body == b"there is no 'nothing' in /\n"
    statuses = {path: served.ask(path).status for path in ("/.touchfs", "/.touchfs/iterators", WAV + "/x", "/merged/x")}
    assert set(statuses.values()) == {404}, statuses


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/shards/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/shards/000000000/..%5c..",
        "/%00",
        "/shards/%00/x",
        "//etc/passwd",
        "/" + "x" * 20000,
    ],
)
def test_nothing_outside_the_tree_is_found(served, path):
    got = served.ask(path)
    assert got.status in (400, 404)
    assert b"root:" not in got.body


def test_a_directory_without_its_slash_is_elsewhere(served):
    got = served.ask("/shards")
    assert (got.status, got.headers["Location"]) == (301, "/shards/")


def test_browsers_are_told_to_run_nothing(hostile):
    for path in ("/", "/nothing", "/shards/h/" + quote("日本.html")):
        headers = hostile.ask(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"].startswith("sandbox;")


def test_hostile_names_are_only_names(hostile):
    """Each link of the listing leads to its file, and none of the names is HTML."""
    page = hostile.ask("/shards/h/").body.decode()
    assert "<img" not in page
    links = [link for link in LINK.findall(page) if link != "../"]
    assert len(links) == len(HOSTILE)
    assert all(link.startswith("/shards/h/") for link in links)
    assert sorted(hostile.ask(link).body for link in links) == sorted(HOSTILE.values())
    listed = json.loads(hostile.ask("/shards/h/", Accept="application/json").body)
    assert [each["url"] for each in listed] == links
    assert {"日本.html", "a b&amp;%252e%252e?x#y.txt", "bad%FF.txt"} < {each["name"] for each in listed}


def test_curl_continues_a_download(hostile, tmp_path):
    target = tmp_path / "file.bin"
    target.write_bytes(HOSTILE["file.bin"][:1000])
    command = ["curl", "-sS", "--fail", "-C", "-", "-o", target, f"{hostile.url}shards/h/file.bin"]
    subprocess.run(command, check=True, timeout=30)
    assert target.read_bytes() == HOSTILE["file.bin"]


def test_fsspec_lists_and_reads_at_random(hostile):
    files = fsspec.filesystem("http", skip_instance_cache=True)
    name = f"{hostile.url}shards/h/file.bin"
    assert name in files.ls(f"{hostile.url}shards/h/", detail=False)
    with files.open(name, block_size=1000) as file:
        file.seek(5000)
        assert file.read(300) == HOSTILE["file.bin"][5000:5300]
    assert files.cat_ranges([name] * 2, [0, 77], [5, 80]) == [HOSTILE["file.bin"][:5], HOSTILE["file.bin"][77:80]]


def test_ffmpeg_seeks_in_a_recording(served, monday, tmp_path):
    command = ["ffmpeg", "-v", "error", "-ss", "0.5", "-i", served.url.rstrip("/") + WAV, "-f", "s16le", "-"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=30)
    assert done.stdout
    assert monday.endswith(done.stdout)
