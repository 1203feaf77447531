"""A Lhotse Shar whose fields are all at URLs."""

import pytest
from every_kind import write_every_kind
from range_server import range_server

from touchfs.node import LazyIndexedSharIterator, LazySharIterator


@pytest.fixture(scope="module")
def shar(tmp_path_factory):
    place = tmp_path_factory.mktemp("kinds")
    write_every_kind(place)
    return place / "shar"


def contents(samples):
    """The key of each sample, and the bytes of its fields."""
    return [{"key": sample.key} | {name: bytes(sample[name]) for name in sorted(sample)} for sample in samples]


@pytest.mark.parametrize("way", ["indexed", "streamed", "streamed directory"])
def test_all_fields_at_urls(shar, tmp_path, monkeypatch, way):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    local = {"cuts": sorted(shar.glob("cuts.*.jsonl")), "recording": sorted(shar.glob("recording.*.tar"))}
    expected = contents(LazySharIterator(local))
    assert len(expected) > 6
    with range_server() as server:
        for path in shar.iterdir():
            server.put(f"/shar/{path.name}", path.read_bytes())
        fields = {name: [f"{server.url}/shar/{path.name}" for path in paths] for name, paths in local.items()}
        if way == "streamed directory":
            found = LazySharIterator(in_dir=f"{server.url}/shar")
        else:
            found = LazyIndexedSharIterator(fields) if way == "indexed" else LazySharIterator(fields)
        assert contents(found) == expected
        assert {path for path, _, _ in server.ranges} >= {f"/shar/{path.name}" for path in local["recording"]}
