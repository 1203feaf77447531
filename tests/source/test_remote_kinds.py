"""Every kind of shard has the same samples at a URL as on the disk."""

import pytest
from every_kind import files_of, write_every_kind
from range_server import range_server
from s3_server import s3_server, upload

import touchfs

LOCAL_ONLY = {"lance.lance"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("kinds")
    write_every_kind(place)
    return place


@pytest.fixture(scope="module", autouse=True)
def _scratch(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path_factory.mktemp("scratch")))
        yield patch


@pytest.fixture(scope="module")
def urls(place, _scratch):
    """The URL of the same directories, by the store."""
    with range_server() as server, s3_server(_scratch) as s3:
        upload(s3, place, "data/set")
        for path in filter(lambda path: path.is_file(), place.rglob("*")):
            server.put(f"/set/{path.relative_to(place)}", path.read_bytes())
        yield {"http": f"{server.url}/set", "s3": "s3://data/set", "memory": put_in_memory(place)}


def put_in_memory(place):
    import fsspec

    fsspec.filesystem("memory").put(str(place), "/set", recursive=True)
    return "memory://set"


@pytest.mark.parametrize("store", ["http", "s3", "memory"])
def test_the_same_samples(place, urls, store):
    kinds = {path.name for path in place.iterdir()} - LOCAL_ONLY
    assert len(kinds) == 13
    for kind in sorted(kinds):
        expected, reports = files_of(place / kind)
        assert len(expected) > 4
        assert files_of(f"{urls[store]}/{kind}") == (expected, reports), kind


@pytest.mark.parametrize("kind", sorted(LOCAL_ONLY))
def test_kinds_of_local_directories_say_so(urls, kind):
    for url in urls.values():
        (report,) = files_of(f"{url}/{kind}")[1]
        assert "is read from a local directory only: copy it" in report


def test_the_library_opens_a_url(place, urls):
    local = touchfs.open(place / "tar")
    remote = touchfs.open(f"{urls['memory']}/tar/a.tar")
    assert [sample.key for sample in remote] == [sample.key for sample in local]
    assert bytes(remote[3]["bin"]) == bytes(local[3]["bin"])
