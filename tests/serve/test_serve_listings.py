"""Whatever a listing names can be fetched, in datasets of all kinds."""

import io
import json
import os
from urllib.parse import unquote_to_bytes

import pytest
from every_kind import OPTIONS, write_every_kind
from tars import write_tar
from tree_servers import HOSTILE

from touchfs.indexing import open_dataset
from touchfs.serve.access import HttpAccess
from touchfs.serve.application import IS_GONE, Application
from touchfs.serve.served_tree import ServedTree
from touchfs.shard.options import DEFAULT

# Nothing lists these.
UNLISTED = ("/slices/all/", "/interleaved/all/")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    place = tmp_path_factory.mktemp("kinds")
    write_every_kind(place)
    write_tar(place / "empty" / "a.tar", {})
    write_tar(place / "hostile" / "a.tar", HOSTILE)
    (place / "damaged").mkdir()
    (place / "damaged" / "a.tar").write_bytes(b"no tar" * 1000)
    return place


def fetched(application, url):
    """The status of an answer, and its body."""
    statuses = []
    path, _, query = url.partition("?")
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "HTTP_HOST": "localhost",
        "HTTP_ACCEPT": "application/json",
        IS_GONE: lambda: False,
        "wsgi.input": io.BytesIO(),
    }
    body = b"".join(application(environ, lambda status, headers: statuses.append(int(status.split()[0]))))
    return statuses[0], body


KINDS = ["arrow", "cache", "empty", "hostile", "interleaved", "parquet", "segments", "shar", "tar", "touch"]
OTHERS = ["damaged", "frames.lance", "jsonl", "jsonl.gz", "kaldi", "megatron", "rows.lance", "tar.gz"]


@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.variant) for kind in OTHERS)])
def test_all_that_is_listed_can_be_fetched(datasets, kind):
    dataset = open_dataset(os.fspath(datasets / kind), options=OPTIONS.get(kind, DEFAULT), in_place=True)
    application = Application(ServedTree(dataset), HttpAccess("localhost", None))
    unlisted = [url for url in UNLISTED if fetched(application, url)[0] == 200]
    left, seen, lost = ["/", *unlisted], set(), []
    while left:
        url = left.pop()
        status, body = fetched(application, url)
        if status != 200:
            lost.append((status, url))
        elif url.endswith("/"):
            rows = [row for row in json.loads(body) if row["url"] not in seen]
            seen |= {row["url"] for row in rows}
            left += [row["url"] for row in rows]
    assert lost == []
    assert f"/shards/{dataset.shards[0].name}/" in seen
