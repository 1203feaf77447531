"""WebDAV: what RFC 4918 says about reading, and clients that people use."""

import os
import subprocess
from xml.etree.ElementTree import fromstring

import pytest
from command import TOUCHFS
from tree_servers import HOSTILE

DAV = "{DAV:}"


def propfind(server, path, body=None, depth="1"):
    got = server.ask(path, "PROPFIND", body, Depth=depth)
    assert got.status == 207, got
    return {each.findtext(DAV + "href"): each for each in fromstring(got.body)}


def properties(response, status="200"):
    """The properties with this status: the element by its tag."""
    groups = [group for group in response.iter(DAV + "propstat") if f" {status} " in group.findtext(DAV + "status")]
    return {each.tag: each for group in groups for each in group.find(DAV + "prop")}


def test_a_directory_and_what_is_in_it(served):
    found = propfind(served, "/shards/000000000")
    names = {"talks/", "numbers.wav", "numbers.txt", "numbers.json"}
    assert found.keys() == {"/shards/000000000/", *(f"/shards/000000000/{name}" for name in names)}
    wav = properties(found["/shards/000000000/numbers.wav"])
    head = served.ask("/shards/000000000/numbers.wav", "HEAD").headers
    assert wav[DAV + "getcontentlength"].text == head["Content-Length"]
    assert wav[DAV + "getetag"].text == head["ETag"]
    assert wav[DAV + "getlastmodified"].text == head["Last-Modified"]
    assert wav[DAV + "getcontenttype"].text == head["Content-Type"]
    assert len(wav[DAV + "resourcetype"]) == 0
    assert properties(found["/shards/000000000/talks/"])[DAV + "resourcetype"].find(DAV + "collection") is not None


def test_depth(served):
    assert list(propfind(served, "/shards/", depth="0")) == ["/shards/"]
    for headers in ({}, {"Depth": "infinity"}):
        refused = served.ask("/", "PROPFIND", **headers)
        assert (refused.status, fromstring(refused.body)[0].tag) == (403, DAV + "propfind-finite-depth")
    assert served.ask("/", "PROPFIND", Depth="2").status == 400


def test_named_properties(served):
    asked = "<getetag/><quota-used-bytes/><a:b/>"
    body = f'<propfind xmlns="DAV:" xmlns:a="urn:&lt;&quot;&amp;"><prop>{asked}</prop></propfind>'
    found = propfind(served, "/shards/000000000/numbers.wav", body, "0")["/shards/000000000/numbers.wav"]
    assert properties(found).keys() == {DAV + "getetag"}
    assert properties(found, "404").keys() == {DAV + "quota-used-bytes", '{urn:<"&}b'}
    names = propfind(served, "/shards/", '<D:propfind xmlns:D="DAV:"><D:propname/></D:propfind>', "0")["/shards/"]
    assert {tag: each.text for tag, each in properties(names).items()} == {
        DAV + "resourcetype": None,
        DAV + "getlastmodified": None,
    }


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("<", 400),
        ("<a/>", 400),
        (b"\xff\xfe\x00", 400),
        ('<!DOCTYPE a [<!ENTITY b "c">]><propfind xmlns="DAV:"><prop>&b;</prop></propfind>', 400),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><propfind xmlns="DAV:"/>', 400),
        ('<?xml version="1.0" encoding="nonsense"?><propfind xmlns="DAV:"/>', 400),
        ("<a>" * 20000, 400),
        ("<propfind xmlns='DAV:'><prop>" + "".join(f"<a{n}/>" for n in range(2000)) + "</prop></propfind>", 400),
        (" " * 70000, 413),
    ],
)
def test_a_request_that_is_not_one(served, body, status):
    got = served.ask("/", "PROPFIND", body, Depth="0")
    assert got.status == status
    assert b"root:" not in got.body


def test_options_and_what_is_not_allowed(served):
    options = served.ask("/", "OPTIONS")
    assert (options.status, options.headers["DAV"]) == (200, "1")
    assert options.headers["Allow"] == "GET, HEAD, OPTIONS, PROPFIND"
    others = ["PUT", "POST", "DELETE", "PATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "PROPPATCH", "TRACE", "BREW"]
    assert {method: served.ask("/shards/x", method).status for method in others} == dict.fromkeys(others, 405)


def test_rclone_copies_everything(speech, served, tmp_path):
    subprocess.run([TOUCHFS, "cp", "-r", f"{speech}:shards", tmp_path / "ours"], check=True)
    command = [
        "rclone",
        "--config",
        "/dev/null",
        "copy",
        "--webdav-url",
        served.url,
        ":webdav:shards",
        tmp_path / "theirs",
    ]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert b"ERROR" not in done.stderr
    subprocess.run(["diff", "-r", tmp_path / "ours", tmp_path / "theirs"], check=True)


def test_cadaver_lists_and_gets_hostile_names(hostile, tmp_path):
    commands = "cd shards/h\nls\nget file.bin\nget 日本.html\nput file.bin other.bin\n"
    environment = {**os.environ, "HOME": os.fspath(tmp_path), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["cadaver", hostile.url],
        input=commands.encode(),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=30,
    )
    assert b"Listing collection `/shards/h/': succeeded." in done.stdout
    assert (tmp_path / "file.bin").read_bytes() == HOSTILE["file.bin"]
    assert (tmp_path / "日本.html").read_bytes() == HOSTILE["日本.html"]
    assert b"405 Method Not Allowed" in done.stdout
