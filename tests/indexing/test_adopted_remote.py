"""An index of another tool beside a tar at a URL: its headers are not asked for, but a dozen of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from adopted_indexes import TOOLS, Place, places, wav, write
from range_server import RangeServer, SlowReplies, range_server
from s3_server import asked_of_s3, s3_server, upload

from touchfs.containers.tar.adopted import energon
from touchfs.indexing import open_dataset
from touchfs.source.remote.kept import KEPT

NOISE = np.random.default_rng(5).bytes(1 << 20)
HALF = NOISE[: 1 << 19]
COUNT = 48


class Cost(NamedTuple):
    """What indexing a tar has asked of a server, and the catalog that it made."""

    requests: int
    ranges: int
    size: int
    catalog: bytes


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with range_server() as server:
        yield server


@pytest.fixture
def renew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forget all that is known of stores."""

    def forget() -> None:
        for variable in ("XDG_CACHE_HOME", "TOUCHFS_SCRATCH_DIR"):
            shutil.rmtree(tmp_path / variable, ignore_errors=True)
            monkeypatch.setenv(variable, str(tmp_path / variable))
        KEPT.forget()
        energon._tables_in.cache_clear()

    forget()
    return forget


def cost(server: RangeServer, renew: Callable[[], None], files: Path) -> Cost:
    renew()
    server.files.clear()
    for path in files.rglob("*"):
        if path.is_file():
            server.put(f"/set/{path.relative_to(files)}", path.read_bytes())
    server.requests.clear()
    server.ranges.clear()
    dataset = open_dataset(f"{server.url}/set/a.tar")
    (shard,) = dataset.shards
    size = sum(stop - start for _, start, stop in server.ranges)
    return Cost(len(server.requests), len(server.ranges), size, Path(shard.catalog).read_bytes())


# Small members with one tool, as their size is nothing to how an index is read.
@pytest.mark.parametrize(("size", "tool"), [*((1 << 19, tool) for tool in TOOLS), (10_000, "energon")])
def test_few_requests(size: int, tool: str, server: RangeServer, renew: Callable[[], None], tmp_path: Path) -> None:
    """Large members cost a request each before, and small ones the whole tar."""
    files = tmp_path / "files"
    files.mkdir()
    path = write(files / "a.tar", {f"{number:05}.jpg": NOISE[:size] for number in range((COUNT << 19) // size)})
    before = cost(server, renew, files)
    TOOLS[tool](path, places(path))
    adopted = cost(server, renew, files)
    assert adopted.catalog == before.catalog
    assert adopted.size < before.size / 5
    # A dozen headers, the end, and the index.
    assert adopted.ranges <= 12 + 1 + 2
    if size == 1 << 19:
        assert adopted.requests < before.requests


def test_heads_of_recordings_are_asked_for_together(
    server: RangeServer, renew: Callable[[], None], tmp_path: Path
) -> None:
    """As many as without an index, but not one after the other."""
    files = tmp_path / "files"
    files.mkdir()
    path = write(files / "a.tar", {f"{number:02}.wav": wav(1_000_000) for number in range(16)})
    server.fault = one_by_one = SlowReplies(0.02)
    before = cost(server, renew, files)
    TOOLS["webshart"](path, places(path))
    server.fault = together = SlowReplies(0.2)
    adopted = cost(server, renew, files)
    assert adopted.catalog == before.catalog
    assert one_by_one.most <= 2 < 8 <= together.most
    assert adopted.size < before.size * 1.5


def test_a_lie_costs_little(server: RangeServer, renew: Callable[[], None], tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    path = write(files / "a.tar", {f"{number:02}.jpg": HALF for number in range(COUNT)})
    before = cost(server, renew, files)
    TOOLS["webshart"](path, [Place(f"x{name}", offset, size) for name, offset, size in places(path)])
    refused = cost(server, renew, files)
    assert refused.catalog == before.catalog
    assert refused.size < before.size * 1.2


def test_large_tables_are_not_fetched(server: RangeServer, renew: Callable[[], None], tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    path = write(files / "a.tar", {f"{number:02}.jpg": HALF for number in range(COUNT)})
    TOOLS["energon"](path, places(path))
    with open(files / ".nv-meta/index.sqlite", "ab") as file:
        file.write(bytes(path.stat().st_size // 4))
    cost(server, renew, files)
    assert not any(name.endswith("index.sqlite") for name, _, _ in server.ranges)


def test_in_s3(renew: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tool is tried above. Energon's index is in a directory of its own."""
    files = tmp_path / "files"
    (files / "shards").mkdir(parents=True)
    path = write(files / "shards/a.tar", {f"{number:02}.jpg": HALF for number in range(COUNT)})
    asked: list[list[str]] = []
    catalogs: list[bytes] = []
    with s3_server(monkeypatch) as client:
        upload(client, files, "data/set")
        for _ in range(2):
            renew()
            with asked_of_s3() as requests:
                (shard,) = open_dataset("s3://data/set/shards").shards
                catalogs.append(Path(shard.catalog).read_bytes())
            asked.append([each for each in requests if each == "get_object set/shards/a.tar"])
            TOOLS["energon"](path, places(path), files)
            for made in files.rglob("*"):
                if made.is_file() and made != path:
                    client.pipe(f"data/set/{made.relative_to(files)}", made.read_bytes())
    assert catalogs[0] == catalogs[1]
    assert len(asked[1]) <= 13 < COUNT / 2 < len(asked[0])
