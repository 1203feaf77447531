"""Files whose names have characters with a meaning in URLs: the same as on a disk, and never another file's bytes."""

import json
import os
import subprocess
from contextlib import contextmanager
from urllib.parse import quote

import numpy as np
import pytest
import soundfile
from command import TOUCHFS, in_one_process
from every_kind import files_of
from range_server import range_server
from stores import STORES, place_in
from tars import write_tar

from touchfs.core.location import Location
from touchfs.source.remote.storage_options import parse_option

pytestmark = pytest.mark.usefixtures("scratch", "own_cache")

NAMES = ["a b", "日本", "p+lus", "at@x", "br[1]", "c%20d", "c d", "%41", "A", "q?x=1", "q", "h#1", "h", "am&p;", "it's"]


@contextmanager
def place_at(store, tmp_path, monkeypatch):
    if store != "http":
        with place_in(store, tmp_path, monkeypatch) as place:
            yield place
        return
    with range_server() as server:
        yield f"{server.url}/set", lambda name, data: server.put(f"/set/{quote(name)}", data)


def run(*arguments):
    done = subprocess.run([TOUCHFS, *in_one_process(*map(str, arguments))], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


# Azure's and Google's clients take what follows `#` or `?` for another part of the URL, Hugging Face has no such names.
@pytest.mark.parametrize("store", ["http", "s3", pytest.param("sftp", marks=pytest.mark.variant)])
def test_shards_have_the_names_of_the_disk(store, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    for number, name in enumerate(NAMES):
        write_tar(tmp_path / "here" / f"{name}.tar", {"x.txt": b"%d" % number})
    with place_at(store, tmp_path, monkeypatch) as (url, put):
        for path in (tmp_path / "here").iterdir():
            put(path.name, path.read_bytes())
        expected = files_of(tmp_path / "here")
        assert len(expected[0]) == len(NAMES)
        assert files_of(url) == expected


@pytest.mark.parametrize("store", STORES)
def test_no_shard_is_left_out_in_silence(store, tmp_path, monkeypatch, caplog):
    with place_at(store, tmp_path, monkeypatch) as (url, put):
        for name in ("ok", "take#2", "why?"):
            write_tar(tmp_path / "x.tar", {"x.txt": name.encode()})
            put(f"{name}.tar", (tmp_path / "x.tar").read_bytes())
        found, _ = files_of(url)
    for name in ("ok", "take#2", "why?"):
        assert found.get(f"shards/{name}/x.txt") == name.encode() or f"{name}.tar: left out" in caplog.text


@pytest.mark.parametrize("store", ["http", pytest.param("s3", marks=pytest.mark.variant), "sftp"])
def test_audio_that_lists_name(store, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    for number, name in enumerate(NAMES):
        soundfile.write(tmp_path / "here" / f"{name}.wav", np.full(80, number * 1000, "<i2"), 8000)
    lines = [{"key": f"k{number}", "audio_filepath": f"{name}.wav"} for number, name in enumerate(NAMES)]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with place_at(store, tmp_path, monkeypatch) as (url, put):
        for path in (tmp_path / "here").iterdir():
            put(path.name, path.read_bytes())
        for root, out in ((tmp_path / "here", "local"), (url, "remote")):
            run("cp", "-r", "--audio-root", root, f"{tmp_path / 'list.jsonl'}:shards", tmp_path / out)
        local, remote = (
            {p.name: p.read_bytes() for p in (tmp_path / out).rglob("*.wav")} for out in ("local", "remote")
        )
        assert len(local) == len(NAMES)
        assert remote == local


@pytest.mark.parametrize(
    "store", ["http", *(pytest.param(store, marks=pytest.mark.variant) for store in ("s3", "sftp"))]
)
def test_files_that_are_packed(store, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    lines = [{"key": f"k{number}", "wav": f"{name}.wav"} for number, name in enumerate(NAMES)]
    for number, name in enumerate(NAMES):
        soundfile.write(tmp_path / "here" / f"{name}.wav", np.full(80, number * 1000, "<i2"), 8000)
    (tmp_path / "here" / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with place_at(store, tmp_path, monkeypatch) as (url, put):
        for path in (tmp_path / "here").iterdir():
            put(path.name, path.read_bytes())
        for place, out in ((tmp_path / "here", "local"), (url, "remote")):
            run("pack", "tar", f"{place}/list.jsonl", tmp_path / out)
    for path in sorted((tmp_path / "local").rglob("*.tar")):
        assert (tmp_path / "remote" / path.relative_to(tmp_path / "local")).read_bytes() == path.read_bytes()


def test_names_and_urls():
    assert Location.of("http://h/d").beneath("a b/ü?%#.x") == "http://h/d/a%20b/%C3%BC%3F%25%23.x"
    assert Location.of("s3://b/d").beneath("a b?%#.x") == "s3://b/d/a b?%#.x"
    assert Location.of("/d").beneath("a%20b") == "/d/a%20b"
    assert Location.of("http://h/d/a%20b%23.tar").name == "a b#.tar"
    assert Location.of("http://h/d/%2e%2e").name == "%2e%2e"
    assert Location.of("http://h/d/a%2Fb").name == "a%2Fb"
    assert Location.of("s3://b/a%20b").name == "a%20b"
    assert os.fsencode(Location.of("http://h/%E9").name) == b"\xe9"


def test_a_passing_404_is_tried_again(tmp_path):
    """As of an object that is uploaded anew, and has the same etag then."""
    write_tar(tmp_path / "a.tar", {f"{number:03}.bin": bytes(20_000) for number in range(100)})
    with range_server() as server:
        server.put("/set/a.tar", (tmp_path / "a.tar").read_bytes())
        server.fault = lambda: "404"
        with pytest.raises(AssertionError, match="no such file or directory"):
            run("index", f"{server.url}/set")
        server.fault = lambda: None
        assert "100 samples; 1 indexed now" in run("index", f"{server.url}/set").stdout


@pytest.mark.parametrize("kind", ["tar", pytest.param("tar.gz", marks=pytest.mark.variant), "zip"])
def test_without_etag_and_time_nothing_is_used_again(tmp_path, kind):
    """Tars are padded, so another one of the same size is usual."""
    import gzip
    import zipfile

    with range_server() as server:
        url = f"{server.url}/set/a.{kind}"
        source = f"zip://a.tar::{url}" if kind == "zip" else url
        for first, second in (("a", "b"), ("b", "c")):
            write_tar(tmp_path / "a.tar", {f"{first}.txt": first.encode() * 700, f"{second}.txt": second.encode() * 30})
            data = (tmp_path / "a.tar").read_bytes()
            if kind == "tar.gz":
                data = gzip.compress(data, mtime=0)
            elif kind == "zip":
                with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
                    archive.writestr(zipfile.ZipInfo("a.tar"), data)
                data = (tmp_path / "a.zip").read_bytes()
            server.put(f"/set/a.{kind}", data.ljust(20_480, b"\0") if kind == "tar" else data, "")
            assert run("cat", f"{source}:shards/a/{first}.txt").stdout == first * 700
        assert run("ls", f"{source}:shards/a").stdout.split() == ["b.txt", "c.txt"]


@pytest.mark.parametrize("value", ["http://keystore:9000", "https://token-server/x", "team-keys"])
def test_names_of_hosts_are_no_secrets(value):
    assert parse_option(f"endpoint_url={value}") == ("endpoint_url", value)


def test_secrets_in_options_are_refused(tmp_path):
    for arguments, text in (
        (["--allow-location", "http://u:SECRET@127.0.0.1/x"], "a URL must not hold a user or a password"),
        (["--storage-option", 'headers={"Authorization":"Bearer SECRET"}'], "may hold a secret"),
        (["--storage-option", "client_kwargs=aws_secret_access_key:SECRET"], "may hold a secret"),
        (["--storage-option", 'client_kwargs={"region_name":"x"}'], "write objects and lists into --options-file"),
    ):
        done = subprocess.run([TOUCHFS, "ls", *arguments, "s3://b/x.tar"], capture_output=True, text=True, check=False)
        assert (done.returncode, text in done.stderr, "SECRET" in done.stderr) == (2, True, False), done.stderr
