"""`loader` of a set of `touchfs.open`: epochs, states and workers."""

import json

import pytest
from torch.utils.data import DataLoader

import touchfs
from touchfs.core.errors import UsageError
from touchfs.dataset.sample import Sample
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


def flat(batches):
    return [number for batch in batches for number in batch.tolist()]


@pytest.mark.parametrize("workers", WORKERS)
def test_each_pass_is_another_epoch(ds, workers):
    loader = ds.shuffle(7).map(number_of).loader(batch_size=4, num_workers=workers)
    first, second = flat(loader), flat(loader)
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first != second


@pytest.mark.parametrize("taken", [0, 3, 8])
@pytest.mark.parametrize("workers", [0, 2])
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


@pytest.mark.parametrize(("before", "after"), [(2, 0), pytest.param(0, 3, marks=pytest.mark.variant)])
def test_other_workers_have_the_same_rest_of_the_epoch(ds, before, after):
    samples = ds.shuffle(7).map(number_of)
    broken = samples.loader(batch_size=4, num_workers=before)
    batches = iter(broken)
    taken = flat([next(batches), next(batches)])
    again = samples.loader(batch_size=4, num_workers=after)
    again.load_state_dict(broken.state_dict())
    assert sorted(taken + flat(again)) == list(range(COUNT))
    assert sorted(flat(again)) == list(range(COUNT))


def test_ranks_merge_their_states_themselves(ds, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = ds.shuffle(7).map(number_of).loader(batch_size=4, distributed=True)
    assert len(flat(loader)) == COUNT // 2
    state = ds.shuffle(7).map(number_of).loader(batch_size=4, num_workers=2, distributed=True).state_dict()
    with pytest.raises(UsageError, match="of 2 workers, and this loader has 0: merge the states"):
        loader.load_state_dict(state)


def test_it_begins_where_the_set_is(ds):
    first, again = ds.shuffle(7).map(number_of), ds.shuffle(7).map(number_of)
    numbers = iter(first)
    taken = [next(numbers) for _ in range(5)]
    again.load_state_dict(first.state_dict())
    assert taken + flat(again.loader(batch_size=4)) == [*ds.shuffle(7).map(number_of)]


def test_what_it_loads(ds):
    assert [[sample.key for sample in batch] for batch in ds[:3].loader(batch_size=2)] == [["s00", "s01"], ["s02"]]
    assert [sample.key for sample in ds[:3].loader()] == ["s00", "s01", "s02"]
    assert [len(batch) for batch in ds.batch(20).loader()] == [20, 10]
    assert flat(ds.map(number_of).filter(is_even).loader(batch_size=4)) == list(range(0, COUNT, 2))
    assert [*ds[:3].map(number_of).loader(2, collate_fn=tuple, drop_last=True)] == [(0, 1)]
    with pytest.raises(UsageError, match="leave out batch_size"):
        ds.batch(4).loader(batch_size=2)


def test_a_state_of_another_set_is_refused(ds):
    loader = ds.shuffle(8).map(number_of).loader(batch_size=4)
    loader.load_state_dict(ds.shuffle(7).map(number_of).loader(batch_size=4).state_dict())
    with pytest.raises(UsageError, match="state is of"):
        next(iter(loader))


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
