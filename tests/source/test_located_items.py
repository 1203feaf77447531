"""Images at URLs that data names: the options, attempts, time-outs and rules for redirects of all remote data hold."""

import json
import logging
import os
import subprocess
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command import TOUCHFS
from interleaved_tars import make_image
from item_rows import batch_of, contents, errors, image_row
from range_server import range_server
from s3_server import s3_server

from touchfs.core.errors import TouchfsError
from touchfs.indexing import open_dataset
from touchfs.interleaved.items.materialize import materialize
from touchfs.limits import Limits
from touchfs.shard.options import INTERLEAVED, Options
from touchfs.tree.tree import Tree

PNG = make_image("png", seed=5)
PLANTED = "planted-signature"


@pytest.fixture(autouse=True)
def _own(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "10")


@pytest.fixture
def server():
    with range_server() as server:
        server.put("/d/a.png", PNG)
        yield server


def write_rows(path, *rows):
    pq.write_table(batch_of(list(rows)).table, path)
    return path


def shown(path, *locations):
    """The bytes of each image of the only sample, or the errno of its read; and the report of the shard."""
    options = Options(kind=INTERLEAVED, limits=Limits(locations=locations))
    dataset = open_dataset(str(path), options=options)
    tree, found = Tree(dataset, [1]), []
    directory = tree.resolve(f"interleaved/{Path(path).stem}/s").inode
    for name, entry, _ in tree.entries(directory):
        if name.endswith(b".png"):
            try:
                content = tree.content(entry.inode)
                found.append(bytes(content.read(0, content.size)))
            except TouchfsError as error:
                found.append(str(error))
    return found, "\n".join(shard.report or "" for shard in dataset.shards)


def test_an_endpoint_that_only_the_options_file_names(tmp_path, monkeypatch):
    with s3_server(monkeypatch) as s3:
        s3.pipe("data/images/a.png", PNG)
        s3.pipe("data/images/b.png", b"before" + PNG)
        names = {"endpoint_url": "AWS_ENDPOINT_URL", "key": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY"}
        options = {name: os.environ[variable] for name, variable in names.items()}
        for variable in names.values():
            monkeypatch.delenv(variable)
        (tmp_path / "options.json").write_text(json.dumps({"s3": options}))
        (tmp_path / "options.json").chmod(0o600)
        rows = [image_row(0, "s3://data/images/a.png"), image_row(1, "s3://data/images/b.png", None, 6, len(PNG))]
        source = write_rows(tmp_path / "rows.parquet", *rows)
        command = [TOUCHFS, "interleave", source, "out", "--jobs", "1"]
        command += ["--allow-location", "s3://data/images", "--options-file", "options.json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        found = pq.read_table(tmp_path / "out/000000.parquet")
        assert found["binary_content"].to_pylist() == [PNG, PNG]
        monkeypatch.setenv("TOUCHFS_OPTIONS_FILE", str(tmp_path / "options.json"))
        assert shown(source, "s3://data/images")[0] == [PNG, PNG]


def test_relative_to_a_shard_at_a_url(server):
    rows = [image_row(0, "a.png"), image_row(1, "../d/a.png"), image_row(2, "x/../../a.png")]
    found = materialize(batch_of(rows, f"{server.url}/d/rows.parquet"))
    assert contents(found) == [PNG, None, None]


def test_what_may_pass_is_tried_again(server):
    fails = count()
    server.fault = lambda: ["503", "cut", "reset", None][min(next(fails), 3)]
    found = materialize(batch_of([image_row(0, f"{server.url}/d/a.png", None, 0, len(PNG))]), [server.url])
    assert contents(found) == [PNG]
    assert next(fails) >= 4


def test_a_store_that_does_not_answer_in_time(server, monkeypatch):
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "1")
    server.fault = lambda: "503"
    rows = [image_row(0, f"{server.url}/d/a.png", None, 0, 5), image_row(1, f"{server.url}/d/b.png")]
    server.put("/d/b.png", PNG)
    found = materialize(batch_of(rows), [server.url])
    assert contents(found) == [None, PNG]
    assert errors(found)[0].startswith("range read error")


@pytest.mark.parametrize("target", ["http://127.0.0.1:{port}/d/a.png", "https://127.0.0.1:{port}/d/a.png", "/up.png"])
def test_a_redirect_is_refused(server, target, tmp_path, caplog):
    """To another port of this machine, and out of the allowed location."""
    with range_server() as other:
        other.put("/d/a.png", b"secret of another server")
        server.put("/up.png", b"not allowed")
        server.redirects = {"/d/from.png": target.format(port=other.server_address[1])}
        rows = [image_row(0, f"{server.url}/d/from.png"), image_row(1, f"{server.url}/d/from.png", None, 0, 4)]
        found = materialize(batch_of(rows), [f"{server.url}/d"])
        assert contents(found) == [None, None]
        assert caplog.text.count("redirect") == 2
        (first, second), _ = shown(write_rows(tmp_path / "rows.parquet", *rows), f"{server.url}/d")
        assert "failed to read" in first
        assert "range read error" in second
        assert other.requests == []


def test_a_signature_is_in_no_error(server, tmp_path, caplog):
    """Neither where it is used, nor where what it is for is missing, refused, damaged or not allowed."""
    caplog.set_level(logging.INFO)
    query = f"?sig={PLANTED}"
    server.put("/d/text.png", b"no image")
    server.redirects = {f"/d/from.png{query}": f"http://127.0.0.1:9/x{query}"}
    names = ["a.png", "gone.png", "from.png"]
    rows = [image_row(i, f"{server.url}/d/{name}{query}") for i, name in enumerate(names)]
    rows += [image_row(i + 10, f"{server.url}/d/{name}{query}", None, 0, 10**6) for i, name in enumerate(names)]
    rows += [image_row(i + 20, f"{server.url}/d/{name}{query}", "member") for i, name in enumerate(names)]
    others = ["{}/up{}", "https:{}{}", "file:///x{1}", "zip://a{1}::{0}/d/a.zip", "{0}/d/a b{1}", "{0}/d/../a{1}"]
    others += ["{0}/d/x.tar.gz{1}", "nosuch://x/a{1}", "s3://bucket/a{1}"]
    rows += [image_row(i + 30, each.format(server.url, query)) for i, each in enumerate(others)]
    rows += [
        image_row(50, f"{server.url}/d/x.tar.gz{query}", None, 0, 5),
        image_row(51, f"{server.url}/d/{query}", None, 5),
    ]
    rows += [image_row(52, f"{server.url}/d/text.png{query}", frame=1)]
    places = [f"{server.url}/d", "nosuch://x"]
    found = materialize(batch_of(rows), places)
    assert contents(found)[0] == PNG
    assert sum(text is not None for text in errors(found)) >= 18
    images, report = shown(write_rows(tmp_path / "rows.parquet", *rows), *places)
    assert PNG in images
    told = "".join(text or "" for text in errors(found))
    told += report + caplog.text + "".join(image for image in images if isinstance(image, str))
    assert PLANTED not in told
    written = [str(path) for path in tmp_path.rglob("*")]
    assert PLANTED not in "".join(written)
