"""`loader` of a set of `touchfs.open`: epochs, states and workers."""

import json
import multiprocessing
import os
import signal
from itertools import islice, zip_longest

import numpy as np
import pytest
import torch
from megatron import UINT16, write_prefix
from torch.utils.data import DataLoader
from touchnet import write_speech

import touchfs
from touchfs.core.errors import TouchfsError, UsageError
from touchfs.dataset.sample import Sample
from touchfs.posix.processes import is_readable
from touchfs.write import TarWriter

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning", "ignore:.*multi-threaded, use of fork:DeprecationWarning"
)
COUNT = 30
WORKERS = [0, pytest.param(2, marks=pytest.mark.variant)]


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    source = tmp_path_factory.mktemp("loaded") / "x.tar"
    with TarWriter(source) as tar:
        for number in range(COUNT):
            tar.add(f"s{number:02d}", {"txt": b"%d" % number})
    return touchfs.open(source)


def number_of(sample: Sample) -> int:
    return sample.ordinal


def is_even(number: int) -> bool:
    return number % 2 == 0


def is_small(number: int) -> bool:
    return number < 25


def flat(batches):
    return [number for batch in batches for number in batch.tolist()]


@pytest.mark.parametrize("workers", WORKERS)
def test_each_pass_is_another_epoch(ds, workers):
    loader = ds.shuffle(7).map(number_of).loader(batch_size=4, num_workers=workers)
    first, second = flat(loader), flat(loader)
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first != second


def refused(sample: Sample) -> None:
    try:
        raise UsageError("the cause")
    except UsageError as cause:
        error = UsageError("PNG needs a decoder", path="a.tar")
        error.add_note("sample 0")
        raise error from cause


@pytest.mark.parametrize("size", [4, None])
def test_an_error_of_a_worker_says_in_one_line_what_it_said_there(ds, size):
    with pytest.raises(UsageError) as told:
        list(ds.map(refused).loader(size, num_workers=1))
    assert str(told.value) == "a.tar: PNG needs a decoder; sample 0"
    assert told.value.__suppress_context__


@pytest.mark.parametrize(("workers", "taken"), [(0, 0), (0, 3), (0, 8), pytest.param(2, 3, marks=pytest.mark.variant)])
def test_a_state_goes_on_exactly(ds, workers, taken):
    def make():
        return ds.shuffle(7).map(number_of).loader(batch_size=4, num_workers=workers)

    whole = make()
    first, second = [batch.tolist() for batch in whole], flat(whole)
    broken = make()
    batches = iter(broken)
    assert [next(batches).tolist() for _ in range(taken)] == first[:taken]
    state = json.loads(json.dumps(broken.state_dict()))
    again = make()
    again.load_state_dict(state)
    # After the last batch the rest is empty.
    assert [batch.tolist() for batch in again] == first[taken:]
    assert flat(again) == second


def joined(batches):
    return [number for batch in batches for number in batch]


def loaders_of_ranks(samples, ranks, workers, **options):
    return [samples.loader(num_workers=workers, rank=rank, world_size=ranks, **options) for rank in range(ranks)]


def steps(loaders, count=None):
    """The global batches that these loaders give, step by step."""
    return [
        [number for part in parts for number in part.tolist()]
        for parts in islice(zip_longest(*loaders, fillvalue=torch.tensor([])), count)
    ]


@pytest.mark.parametrize("window", [{}, {"window": 12}])
@pytest.mark.parametrize(
    "changes",
    [
        [(1, 0), (2, 2), (4, 0)],
        pytest.param([(4, 1), (2, 0), (1, 3)], marks=pytest.mark.variant),
    ],
)
def test_batches_do_not_depend_on_ranks_and_workers(ds, changes, window):
    """Each takes two batches, and others go on with its state."""
    samples = ds.shuffle(7, tail="drop", **window).map(number_of)
    expected = steps([samples.loader(4)])
    assert sorted(joined(expected)) == sorted({number for batch in expected for number in batch})
    state, seen = None, []
    for ranks, workers in changes:
        loaders = loaders_of_ranks(samples, ranks, workers, global_batch=4)
        for each in loaders:
            assert len(each) == len(expected) == 7
            if state is not None:
                each.load_state_dict(state)
        seen += steps(loaders, 2)
        states = [json.loads(json.dumps(each.state_dict())) for each in loaders]
        assert all(each == states[0] for each in states)
        state = states[0]
    assert seen == expected[: 2 * len(changes)]
    assert state["position"] == 8 * len(changes)
    last = samples.loader(4)
    last.load_state_dict(state)
    assert steps([last]) == expected[2 * len(changes) :]
    assert steps([last]) == steps([at_epoch(samples, 1)])


def at_epoch(samples, epoch):
    loader = samples.loader(4)
    for _ in range(epoch):
        list(loader)
    return loader


@pytest.mark.parametrize(("tail", "sizes"), [("keep", [8, 8, 8, 6]), ("drop", [8, 8, 8]), ("pad", [8, 8, 8, 8])])
def test_the_last_batch(ds, tail, sizes):
    for ranks in (1, 2):
        loaders = loaders_of_ranks(ds.shuffle(7, tail=tail).map(number_of), ranks, 0, global_batch=8)
        assert [len(step) for step in steps(loaders)] == sizes


def test_batches_of_another_size_go_on_and_say_so(ds):
    samples = ds.shuffle(7).map(number_of)
    whole = [*ds.shuffle(7).map(number_of)]
    before = samples.loader(8)
    first = steps([before], 2)
    again = samples.loader(5)
    with pytest.warns(UserWarning, match="global batches of 8, which go on in 5"):
        again.load_state_dict(before.state_dict())
    assert joined(first + steps([again])) == whole


def test_ranks_are_those_of_the_environment(ds, monkeypatch):
    samples = ds.shuffle(7).map(number_of)
    whole = steps([samples.loader(4)])
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert steps([samples.loader(global_batch=4)]) == [step[len(step) // 2 :] for step in whole]
    assert flat(samples.loader(2)) == flat(samples.loader(global_batch=4))
    with pytest.raises(UsageError, match="2 ranks cannot share global batches of 5 samples: take 4 or 6"):
        samples.loader(global_batch=5)


def test_a_pass_that_is_left_is_followed_by_the_next_epoch(ds):
    samples = ds.shuffle(7).map(number_of)
    loader = samples.loader(4)
    next(iter(loader))
    assert steps([loader]) == steps([at_epoch(samples, 1)])


def test_a_mixture_is_loaded_in_batches(ds):
    samples = ds.map(number_of)
    mixed = touchfs.mux([(samples.shuffle(1), 3), (samples.shuffle(2), 1)], weights={20: [1, 1]})
    whole = [*touchfs.mux([(samples.shuffle(1), 3), (samples.shuffle(2), 1)], weights={20: [1, 1]})]
    assert len(whole) == 2 * COUNT
    before = mixed.loader(4, 2)
    seen = joined(steps([before], 4))
    loaders = loaders_of_ranks(mixed, 2, 1, global_batch=4)
    for each in loaders:
        each.load_state_dict(before.state_dict())
    assert seen + joined(steps(loaders)) == whole


SECONDS = [0.05 * (1 + number * 7 % 11) for number in range(26)]


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    source = tmp_path_factory.mktemp("speech") / "x"
    write_speech(
        source, [({"key": f"s{i:02d}", "sample_rate": 8000}, bytes(int(16000 * s))) for i, s in enumerate(SECONDS)]
    )
    return touchfs.open(source)


def seconds_of(sample: Sample) -> tuple[int, float]:
    return sample.ordinal, sample.duration


@pytest.mark.parametrize("pack", [False, pytest.param(True, marks=pytest.mark.variant)])
def test_batches_by_length_do_not_depend_on_ranks_and_workers(speech, pack):
    """Each takes two global batches of four, and others go on with its state."""
    samples = speech.shuffle(7, tail="pad").map(seconds_of)
    limit = {"max_duration": 0.6, "pack": pack, "collate_fn": list}
    alone = samples.loader(**limit)
    batches = [*alone]
    assert len(batches) == len(samples.loader(**limit)) and [*alone] != batches
    assert sorted(number for batch in batches for number, _ in batch) == list(range(26))
    for batch in batches:
        lengths = [seconds for _, seconds in batch]
        assert (sum(lengths) if pack else len(lengths) * max(lengths)) <= 0.6 + 1e-6
    padded = [batches[i % len(batches)] for i in range(-(-len(batches) // 4) * 4)]
    state, seen = None, []
    for ranks, workers in ((1, 2), (2, 1), (4, 0)):
        loaders = loaders_of_ranks(samples, ranks, workers, global_batch=4, **limit)
        if state is not None:
            for each in loaders:
                each.load_state_dict(state)
        parts = [list(islice(one, 4 // ranks)) for one in loaders]
        seen += joined(parts)
        states = [json.loads(json.dumps(one.state_dict())) for one in loaders]
        assert all(one == states[0] for one in states)
        state = states[0]
    assert seen == padded[:12] and state["position"] == 12
    last = samples.loader(global_batch=4, **limit)
    last.load_state_dict(state)
    assert [*last] == padded[12:]


def test_a_mixture_by_seconds(speech):
    long, short = speech.where("duration > 0.3").shuffle(1), speech.where("duration <= 0.3").shuffle(2)
    mixture = touchfs.mux([(long, 1), (short, 1)], by="seconds")
    seconds = [sample.duration for sample in mixture]
    for position in range(1, len(seconds)):
        of_long = sum(each for each in seconds[:position] if each > 0.3)
        assert abs(of_long - sum(seconds[:position]) / 2) <= max(SECONDS) + 1e-6
    batches = list(mixture.loader(max_duration=0.6, pack=True, rank=0, world_size=1))
    assert sum(map(len, batches)) == len(seconds)


def test_a_state_within_a_global_batch_is_refused(speech):
    samples = speech.shuffle(7)
    loader = samples.loader(max_duration=1.0, global_batch=2)
    batches = iter(loader)
    assert all(isinstance(sample, Sample) for sample in next(batches))
    with pytest.raises(UsageError, match="of this global batch 1 are left to take: save between"):
        loader.state_dict()
    next(batches)
    assert loader.state_dict()["position"] == 2
    with pytest.raises(UsageError, match=r"and a batch at most 0.4: .* where duration <= 0.4"):
        samples.loader(max_duration=0.4)
    short = samples.where("duration <= 0.4").loader(max_duration=0.4)
    assert sum(map(len, short)) == sum(seconds <= 0.4 for seconds in SECONDS)
    with pytest.raises(UsageError, match="give max_duration or max_tokens"):
        samples.loader(pack=True)
    with pytest.raises(UsageError, match="leave out batch_size"):
        samples.loader(4, max_duration=1.0)


def test_tokens_are_packed(tmp_path):
    lengths = [3, 8, 5, 1, 7, 4, 2, 6]
    write_prefix(tmp_path / "text", UINT16, [np.arange(length, dtype=np.uint16) for length in lengths])
    samples = touchfs.open(tmp_path / "text.idx")
    batches = [[len(sample.array()) for sample in batch] for batch in samples.loader(max_tokens=10, pack=True)]
    assert batches == [[3, 5, 2], [8, 1], [7], [4, 6]]
    two = (samples + samples[:4]).where("ordinal != 1").loader(max_tokens=10, pack=True)
    assert sorted(len(sample.array()) for batch in two for sample in batch) == [1, 1, 2, 3, 3, 4, 5, 5, 6, 7]
    windows = samples.tokens(8)
    batches = [[len(window.array()) for window in batch] for batch in windows.loader(max_tokens=16)]
    assert batches == [[8, 8], [8], [8, 4]]
    mixture = touchfs.mux([(windows, 1), (samples, 1)], by="tokens")
    (batch,) = mixture.loader(13)
    assert [len(sample.array()) for sample in batch] == [3, 8, 8, 8, 5, 1, 8, 7, 4, 8, 2, 6, 4]
    with pytest.raises(UsageError, match="sample 1 has 8 tokens, and a batch at most 7: give a larger max_tok"):
        samples.loader(max_tokens=7)
    with pytest.raises(UsageError, match="sample 0 has no length in seconds that the index knows"):
        samples.loader(max_duration=7)


def test_what_has_no_global_batches_says_so(ds):
    filtered = ds.map(number_of).filter(is_even)
    with pytest.raises(UsageError, match="a LazyFilter does not know it: filter with where"):
        filtered.loader(global_batch=4)
    with pytest.raises(UsageError, match="give one of them"):
        ds.loader(4, global_batch=8)
    with pytest.raises(UsageError, match="give rank and world_size, or none"):
        ds.loader(4, rank=1)
    with pytest.raises(UsageError, match="leave out batch_size"):
        ds.batch(4).loader(global_batch=8)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"position": 31}, "must be within 0 and 30"),
        ({"position": -1}, "must be within"),
        ({"epoch": "0"}, "must be within"),
        ({"global_batch": None}, "must be within"),
        ({"tail": "pad"}, "the state has the tail 'pad', and this loader 'keep'"),
        ({"order": {}}, "the state has the order"),
        ({"touchfs_loader": 2}, "not a state of this loader"),
    ],
)
def test_damaged_states_and_those_of_others_are_refused(ds, change, why):
    loader = ds.shuffle(7).loader(4)
    with pytest.raises(TouchfsError, match=why):
        loader.load_state_dict(loader.state_dict() | change)
    with pytest.raises(TouchfsError, match="not a state"):
        loader.load_state_dict(ds.filter(bool).loader(4).state_dict())


@pytest.mark.parametrize(("before", "after"), [(2, 0), pytest.param(0, 3, marks=pytest.mark.variant)])
def test_other_workers_have_the_same_rest_of_a_filtered_epoch(ds, before, after):
    samples = ds.shuffle(7).map(number_of).filter(is_even)
    broken = samples.loader(batch_size=4, num_workers=before)
    batches = iter(broken)
    taken = flat([next(batches), next(batches)])
    again = samples.loader(batch_size=4, num_workers=after)
    again.load_state_dict(broken.state_dict())
    assert sorted(taken + flat(again)) == list(range(0, COUNT, 2))
    assert sorted(flat(again)) == list(range(0, COUNT, 2))


def test_ranks_merge_their_states_of_filtered_sets_themselves(ds):
    samples = ds.shuffle(7).map(number_of).filter(is_even)
    loader = samples.loader(batch_size=4, rank=1, world_size=2)
    other = samples.loader(batch_size=4, rank=0, world_size=2)
    assert sorted(flat(loader) + flat(other)) == list(range(0, COUNT, 2))
    state = samples.loader(batch_size=4, num_workers=2, rank=1, world_size=2).state_dict()
    with pytest.raises(UsageError, match="of 2 workers, and this loader has 0: merge the states"):
        loader.load_state_dict(state)


def test_it_begins_where_the_set_is(ds):
    first, again = ds.shuffle(7).map(number_of), ds.shuffle(7).map(number_of)
    numbers = iter(first)
    taken = [next(numbers) for _ in range(5)]
    again.load_state_dict(first.state_dict())
    assert taken + flat(again.loader(batch_size=4)) == [*ds.shuffle(7).map(number_of)]
    again.load_state_dict(first.state_dict())
    with pytest.raises(UsageError, match="begins at a state of samples, which is none of batches by length"):
        again.loader(max_tokens=4)


@pytest.mark.parametrize(
    ("workers", "ranks"),
    [(0, 1), (2, 2), *(pytest.param(*each, marks=pytest.mark.variant) for each in ((0, 2), (2, 1)))],
)
def test_items_go_on_where_the_set_is(ds, workers, ranks):
    """Workers and ranks share what is left of the epoch, and after that whole ones."""
    first, again = (ds.shuffle(7).map(number_of).filter(is_small) for _ in range(2))
    taken = list(islice(first, 5))
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    loaders = [again.loader(num_workers=workers, rank=rank, world_size=ranks) for rank in range(ranks)]
    for before in (taken, []):
        assert sorted([*before, *(number for loader in loaders for number in loader)]) == list(range(25))


def test_what_it_loads(ds):
    assert [[sample.key for sample in batch] for batch in ds[:3].loader(batch_size=2)] == [["s00", "s01"], ["s02"]]
    assert [sample.key for sample in ds[:3].loader()] == ["s00", "s01", "s02"]
    assert [len(batch) for batch in ds.batch(20).loader()] == [20, 10]
    assert flat(ds.map(number_of).filter(is_even).loader(batch_size=4)) == list(range(0, COUNT, 2))
    assert [*ds[:3].map(number_of).loader(2, collate_fn=tuple, drop_last=True)] == [(0, 1)]
    with pytest.raises(UsageError, match="leave out batch_size"):
        ds.batch(4).loader(batch_size=2)


@pytest.mark.parametrize(("size", "workers"), [(1, 2), (3, 2), (1, 0)])
def test_a_plain_loader_says_that_it_has_one_order(ds, size, workers, capfd):
    """In its workers: their warnings are on stderr."""
    if workers:
        list(
            DataLoader(ds.shuffle(3).map(number_of), batch_size=size, num_workers=workers, worker_init_fn=show_warnings)
        )
        assert "Use samples.loader(" in capfd.readouterr().err
    else:
        with pytest.warns(UserWarning, match="Use samples"):
            list(DataLoader(ds.shuffle(3).map(number_of), batch_size=size))


def show_warnings(worker: int) -> None:
    import sys
    import warnings

    warnings.simplefilter("default")
    warnings.showwarning = lambda message, *rest: print(message, file=sys.stderr, flush=True)


def large(sample: Sample) -> bytes:
    return bytes(1 << 20)


def train_until_killed(ds):
    for _ in ds.map(large).loader(2, 2, collate_fn=list):
        os.kill(os.getpid(), signal.SIGKILL)


def test_workers_end_with_a_process_that_is_killed(ds):
    """Though each waits to hand over a batch that is larger than a pipe, which the other one holds open."""
    ended, end_of_all = os.pipe()  # the workers have it, too
    job = multiprocessing.get_context("fork").Process(target=train_until_killed, args=(ds,))
    job.start()
    os.close(end_of_all)
    job.join(60)
    assert job.exitcode == -signal.SIGKILL
    assert is_readable(ended, 60)
    os.close(ended)
