"""Jobs of PyTorch that are killed at any moment: those that go on train on what an undisturbed one trains on."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from waiting import wait_until

import touchfs
from touchfs.posix.atomic import atomic_file
from touchfs.posix.processes import is_readable
from touchfs.write import TarWriter

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning", "ignore:.*multi-threaded, use of fork:DeprecationWarning"
)
FORK = multiprocessing.get_context("fork")
COUNT, BATCH, EPOCHS = 92, 8, 2
ANY = [(1, 0), (2, 1), (4, 0), (1, 3), (2, 0)]


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> touchfs.OpenDataset:
    source = tmp_path_factory.mktemp("trained") / "x.tar"
    with TarWriter(source) as tar:
        for number in range(COUNT):
            tar.add(f"s{number:02d}", {"txt": b"%d" % number})
    return touchfs.open(source)


def number_of(sample: Any) -> int:
    return int(sample["txt"])


def is_no_third(number: int) -> bool:
    return number % 3 > 0


def shuffled(ds: touchfs.OpenDataset, **order: Any) -> Any:
    return ds.shuffle(7, **order).map(number_of)


def mixed(ds: touchfs.OpenDataset) -> Any:
    sources = [(ds.shuffle(seed).map(number_of), weight) for seed, weight in ((1, 3), (2, 1))]
    return touchfs.mux(sources, weights={30: [1, 1]})


def numbers(part: Any) -> list[int]:
    return part.tolist() if isinstance(part, torch.Tensor) else [part]


def train(samples: Any, options: dict[str, Any], place: Path, until: int, workers: int, ranks: int, rank: int) -> None:
    """A rank of a job, which takes no more batches once there are `until` of them, and waits."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", f"file://{place / 'meet'}", rank=rank, world_size=ranks)
    loader = samples.loader(num_workers=workers, **options)
    state, batches = saved(place)
    if state is not None:
        loader.load_state_dict(state)
    while len(batches) < until:
        for part in loader:
            parts: list[Any] = [None] * ranks
            torch.distributed.all_gather_object(parts, numbers(part))
            batches.append(list(chain(*parts)))
            if rank == 0:
                with atomic_file(place / "checkpoint") as file:
                    file.write(json.dumps([loader.state_dict(), batches]).encode())
            if len(batches) == until:
                signal.pause()
    signal.pause()


def saved(place: Path) -> tuple[Any, list[list[int]]]:
    path = place / "checkpoint"
    return json.loads(path.read_bytes()) if path.exists() else (None, [])


def run_and_kill(rank: Callable[[int], None], ranks: int, place: Path, count: int, dice: random.Random) -> None:
    """Kill all ranks, but none of their workers, as soon as the checkpoint has so many batches."""
    (place / "meet").unlink(missing_ok=True)
    ended, end_of_all = os.pipe()  # their workers have it, too
    processes = [FORK.Process(target=rank, args=(number,)) for number in range(ranks)]
    for process in processes:
        process.start()
    os.close(end_of_all)
    try:
        wait_until(lambda: len(saved(place)[1]) >= count or any(process.exitcode for process in processes))
        assert not any(process.exitcode for process in processes)
    finally:
        for process in dice.sample(processes, ranks):
            process.kill()
    for process in processes:
        process.join(60)
    assert is_readable(ended, 60), "their workers end with them"
    os.close(ended)


@pytest.mark.parametrize(
    ("seed", "kills"), [(0, 1), *(pytest.param(seed, 5, marks=pytest.mark.soak) for seed in range(1, 11))]
)
@pytest.mark.parametrize(
    ("make", "options", "jobs"),
    [
        pytest.param(shuffled, {"global_batch": BATCH}, ANY, id="batches", marks=pytest.mark.variant),
        pytest.param(
            partial(shuffled, window=32), {"global_batch": BATCH}, ANY, id="windowed", marks=pytest.mark.variant
        ),
        pytest.param(partial(shuffled, window=32, lanes=4), {"global_batch": BATCH}, ANY, id="lanes"),
        pytest.param(mixed, {"global_batch": BATCH}, ANY, id="a mixture"),
        pytest.param(lambda ds: shuffled(ds)[:30], {}, [(1, 2)], id="samples"),
        pytest.param(lambda ds: shuffled(ds).filter(is_no_third), {"batch_size": BATCH}, [(1, 2)], id="a filter"),
    ],
)
def test_it_goes_on_with_the_same_batches(
    ds: touchfs.OpenDataset,
    make: Any,
    options: dict[str, Any],
    jobs: list[tuple[int, int]],
    seed: int,
    kills: int,
    tmp_path: Path,
) -> None:
    """The jobs, of other ranks and workers, take turns; each is killed after some batches, or at its start."""
    samples, dice = make(ds), random.Random(seed)
    undisturbed = samples.loader(num_workers=jobs[0][1], rank=0, world_size=1, **options)
    epochs = [[numbers(part) for part in undisturbed] for _ in range(EPOCHS)]
    expected = list(chain(*epochs))
    size = len(list(chain(*epochs[0])))
    if make is not mixed:
        assert all(len(set(chain(*epoch))) == size for epoch in epochs)
    # Two more are killed at the ends of the epochs.
    ends = sorted([*dice.choices(range(len(expected)), k=kills), len(expected) // EPOCHS, len(expected)])
    for (ranks, workers), end in zip(cycle(jobs), ends, strict=False):
        until = min(end + dice.randrange(3), len(expected))
        run_and_kill(partial(train, samples, options, tmp_path, until, workers, ranks), ranks, tmp_path, end, dice)
        state, batches = saved(tmp_path)
        assert batches == expected[: len(batches)]
        if batches and "position" in state:
            assert state["epoch"] * size + state["position"] == len(list(chain(*batches)))
    assert batches == expected
