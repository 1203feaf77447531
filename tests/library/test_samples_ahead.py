"""`touchfs.open(…).prefetch(n)`: what comes next is here, or made, before it is taken."""

import gc
import itertools
import random
import threading

import pytest
from range_server import range_server
from tars import write_tar
from torch.utils.data import DataLoader
from waiting import wait_until

import touchfs
from touchfs.core.errors import SourceError, UsageError
from touchfs.source.remote.kept import KEPT, TURNOVER
from touchfs.torch import NodeIterableDataset

COUNT, AHEAD = 60, 8
FILES = {f"s{number:03}.bin": random.Random(number).randbytes(300_000) for number in range(COUNT)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tar(tmp_path_factory.mktemp("data") / "one.tar", FILES).read_bytes()


@pytest.fixture
def server(data, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    with range_server() as server:
        server.put("/one.tar", data)
        yield server


def is_asked_for(server, start: int, stop: int) -> bool:
    for _, first, last in sorted(server.ranges):
        if first <= start:
            start = max(start, last)
    return start >= stop


def test_files_of_the_next_samples_are_here_before_they_are_read(server, data, monkeypatch):
    monkeypatch.setenv("TOUCHFS_REVALIDATE", "3600")
    ahead = [FILES[f"{sample.key}.bin"] for sample in touchfs.open(f"{server.url}/one.tar").shuffle(7).take(AHEAD)]
    samples = iter(touchfs.open(f"{server.url}/one.tar").shuffle(7).prefetch(AHEAD))
    first = next(samples)
    for start in map(data.index, ahead):
        wait_until(lambda start=start: is_asked_for(server, start, start + 300_000))
    server.fault = lambda: "500"  # from now on nothing can be fetched
    for sample in [first, *itertools.islice(samples, AHEAD - 1)]:
        assert sample["bin"] == FILES[f"{sample.key}.bin"]
    server.fault = lambda: None
    assert sum(sample["bin"] == FILES[f"{sample.key}.bin"] for sample in samples) == COUNT - AHEAD


def test_functions_of_map_run_in_threads_ahead_and_in_order(server):
    names = set()

    def read(sample):
        names.add(threading.current_thread().name)
        return sample.key, sample["bin"]

    samples = touchfs.open(f"{server.url}/one.tar").shuffle(7).map(read)
    plain = list(samples)
    names.clear()
    assert list(touchfs.open(f"{server.url}/one.tar").shuffle(7).map(read).prefetch(AHEAD, threads=3)) == plain
    assert 1 <= len(names) <= 3 and threading.current_thread().name not in names


def test_a_pass_resumes_exactly(server):
    def make():
        return touchfs.open(f"{server.url}/one.tar").shuffle(7).prefetch(AHEAD)

    samples = make()
    running = iter(samples)
    before = [next(running).key for _ in range(20)]
    state = samples.state_dict()
    after = [sample.key for sample in running]
    assert sorted(before + after) == sorted({name.removesuffix(".bin") for name in FILES})
    again = make()
    again.load_state_dict(state)
    assert [sample.key for sample in again] == after


def test_threads_that_wait_for_room_in_the_cache_go_on_and_end_with_a_pass(server, monkeypatch):
    """The cache has room for 16 MiB of what is fetched ahead, and all samples take 18 MB."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_SIZE", "1M")
    KEPT.forget()
    TURNOVER.forget()
    samples = touchfs.open(f"{server.url}/one.tar").shuffle(7).prefetch(COUNT, threads=2)
    assert {f"{sample.key}.bin": sample["bin"] for sample in samples} == FILES
    KEPT.forget()
    asked = len(server.ranges)
    running = iter(samples)
    next(running)
    wait_until(lambda: sum(stop - start for _, start, stop in server.ranges[asked:]) > 14 << 20)
    del running, samples  # which holds the pass that was begun last
    gc.collect()
    wait_until(lambda: not any(thread.name == "touchfs-prefetch" for thread in threading.enumerate()))
    TURNOVER.forget()


def test_a_set_stays_a_set(server):
    samples = touchfs.open(f"{server.url}/one.tar")
    ahead = samples.prefetch(AHEAD)
    assert len(ahead) == COUNT and ahead[3] == samples[3] and ahead["s007"] == samples["s007"] and "s007" in ahead
    assert [sample.key for sample in ahead[5:9]] == [sample.key for sample in samples[5:9]]
    assert list(ahead.keys()) == list(samples.keys())
    assert [sample.key for sample in ahead.shuffle(7)] == [sample.key for sample in samples.shuffle(7)]
    assert len(ahead.where("size.bin > 10").batch(7)) == 9
    assert [len(batch) for batch in ahead.batch(25)] == [25, 25, 10]
    assert "prefetch(8" in repr(ahead)


def test_a_batch_of_a_loader_is_made_in_threads(server):
    """PyTorch asks a map-style set for the items of a batch in one call."""
    together = threading.Barrier(4, timeout=30)

    def meet(sample):
        together.wait()
        return sample["bin"]

    samples = touchfs.open(f"{server.url}/one.tar").map(meet).prefetch(AHEAD, threads=4)
    batches = list(DataLoader(samples, batch_size=4, collate_fn=list))
    assert [data for batch in batches for data in batch] == list(FILES.values())


def test_workers_of_a_loader_prefetch(server):
    samples = touchfs.open(f"{server.url}/one.tar").shuffle(7).prefetch(AHEAD).map(len_of)
    loader = DataLoader(NodeIterableDataset(samples), batch_size=None, num_workers=2)
    assert sorted(loader) == [300_000] * COUNT


def len_of(sample):
    return len(sample["bin"])


def test_whoever_reads_a_file_gets_its_error(server, monkeypatch):
    samples = iter(touchfs.open(f"{server.url}/one.tar").prefetch(4))
    assert next(samples)["bin"] == FILES["s000.bin"]
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "0.2")
    server.fault = lambda: "500"
    late = list(samples)
    assert len(late) == COUNT - 1
    with pytest.raises(SourceError):
        late[-1]["bin"]


@pytest.mark.parametrize("arguments", [(0,), (4, 0), (-1,), (1.5,), ("3",), (True,)])
def test_numbers_that_make_no_sense_are_refused(server, arguments):
    with pytest.raises(UsageError, match="1 or more"):
        touchfs.open(f"{server.url}/one.tar").prefetch(*arguments)
