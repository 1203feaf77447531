"""A job goes on over a dataset that has grown: what was left of its epoch comes once, and then what is new."""

import os
import re
from itertools import chain, islice

import pytest

import touchfs
from touchfs.core.errors import UsageError
from touchfs.sample_set import SampleSet
from touchfs.write import TarWriter

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create:UserWarning", "ignore:.*multi-threaded, use of fork:DeprecationWarning"
)


def write(directory, *names, count=6):
    """Shards of as many samples, of which the keys are a shard's name and a number."""
    os.makedirs(directory, exist_ok=True)
    for name in names:
        with TarWriter(directory / f"{name}.tar") as tar:
            for number in range(count):
                tar.add(f"{name}-{number}", {"txt": b"%d" % number, "cls": b"%d" % (number % 3)})


@pytest.fixture
def place(tmp_path):
    write(tmp_path / "d", "m", "n", "o")
    return tmp_path / "d"


def key_of(sample):
    return sample.key


def key_set(*names, count=6):
    return {f"{name}-{number}" for name in names for number in range(count)}


def grow(place):
    """Lose `m`, and get `a` and `z`."""
    (place / "m.tar").unlink()
    write(place, "a", "z", count=5)


@pytest.mark.parametrize(
    ("order", "before", "after"),
    [({}, (2, 0), (1, 2)), ({"window": 8}, (1, 0), (2, 0)), ({"window": 8, "lanes": 2}, (1, 1), (2, 0))],
)
def test_a_loader_goes_on_with_any_ranks_and_workers(place, order, before, after):
    def loaders(ranks, workers):
        samples = touchfs.open(place).shuffle(7, tail="drop", **order).map(key_of)
        return [
            samples.loader(global_batch=4, num_workers=workers, rank=rank, world_size=ranks, collate_fn=list)
            for rank in range(ranks)
        ]

    def run(ranks, batches=None):
        return [chain.from_iterable(islice(rank, batches)) for rank in ranks]

    old = loaders(*before)
    came = [*chain.from_iterable(run(old, 2))]
    state = old[0].state_dict()
    assert all(rank.state_dict() == state for rank in old) and len(came) == 8
    grow(place)
    new = loaders(*after)
    unseen = {key for key in key_set("m", "n", "o") if key not in came}
    left = {key for key in unseen if key[0] != "m"}
    told = f"{len(left)} samples of the old order left, then 10 new samples; {len(unseen - left)} sample"
    for rank in new:
        with pytest.raises(UsageError, match=r"only shards were added or removed, load_state_dict\(state, extend=T"):
            rank.load_state_dict(state)
        with pytest.warns(UserWarning, match=told):
            rank.load_state_dict(state, extend=True)
    batches = [[*chain.from_iterable(step)] for step in zip(*(islice(rank, 2) for rank in new), strict=True)]
    state = new[0].state_dict()
    assert all(rank.state_dict() == state for rank in new)
    (again,) = loaders(1, 0)
    again.load_state_dict(state)
    rest = [*chain.from_iterable([*batches, *again])]
    due = left | key_set("a", "z", count=5)
    assert len(rest) == len(set(rest)) == len(due) // 4 * 4 and set(rest) <= due
    assert sorted(rest[: len(left)]) == sorted(left)
    ordinary = loaders(1, 0)[0]
    for _ in range(2):
        second = [*chain.from_iterable(ordinary)]
    assert [*chain.from_iterable(again)] == second


def test_shards_that_are_named_more_or_less_often(place):
    """A shard has the weight of how often it is named: what is new is each further time, and what is lost each less."""

    def samples(*names):
        return touchfs.open([str(place / f"{name}.tar") for name in names]).shuffle(7)

    def keys(ds):
        return sorted(sample.key for sample in ds)

    one = samples("m", "n", "o")
    came = [sample.key for sample in islice(one, 7)]
    more = samples("m", "m", "n", "n", "n", "o")
    with pytest.warns(UserWarning, match="11 samples of the old order left, then 18 new samples$"):
        more.load_state_dict(one.state_dict(), extend=True)
    assert keys(more) == sorted([*(key_set("m", "n", "o") - {*came}), *key_set("m"), *key_set("n"), *key_set("n")])
    many = samples("m", "m", "n", "n", "n", "o")
    came = [sample.key for sample in islice(many, 20)]
    with pytest.warns(UserWarning, match=r"of the old order left, then 0 new samples; \d+ samples? lost") as told:
        one.load_state_dict(many.state_dict(), extend=True)
    left, _, lost = (int(number) for number in re.findall(r"\d+", str(told[0].message)))
    rest = keys(one)
    assert len(rest) == left and left + lost == 36 - 20
    assert all((came + rest).count(key) <= 3 for key in rest)


def test_the_second_growth_of_one_epoch(place):
    def samples():
        return touchfs.open(place).shuffle(7)

    def goes_on(state):
        ds = samples()
        with pytest.warns(UserWarning, match="samples of the old order"):
            ds.load_state_dict(state, extend=True)
        return ds

    ds = samples()
    came = [sample.key for sample in islice(ds, 5)]
    write(place, "a")
    ds = goes_on(ds.state_dict())
    came += [sample.key for sample in islice(ds, 3)]
    write(place, "b")
    (place / "o.tar").unlink()
    ds = goes_on(ds.state_dict())
    came += [sample.key for sample in ds]
    assert len(set(came)) == len(came)
    assert {key for key in came if key[0] != "o"} == key_set("m", "n", "a", "b")
    assert sorted(sample.key for sample in ds) == sorted(key_set("m", "n", "a", "b"))


def test_filtered_segments_and_added_sets_go_on(place, tmp_path):
    write(tmp_path / "other", "x")

    def samples():
        return (touchfs.open(place) + touchfs.open(tmp_path / "other")).where('cls != "1"').shuffle(3)

    ds = samples()
    came = [sample.key for sample in islice(ds, 4)]
    state = ds.state_dict()
    write(place, "a")
    write(tmp_path / "other", "y")
    ds = samples()
    with pytest.warns(UserWarning, match="12 samples of the old order left, then 8 new samples"):
        ds.load_state_dict(state, extend=True)
    came += [sample.key for sample in ds]
    expected = [key for key in key_set("m", "n", "o", "x", "a", "y") if key[-1] not in "14"]
    assert sorted(came) == sorted(expected)
    other = (touchfs.open(place) + touchfs.open(tmp_path / "other")).where('cls != "2"').shuffle(3)
    with pytest.raises(UsageError, match=r"the state is over 'shards where .*: choose the same"):
        other.load_state_dict(state, extend=True)


def test_a_shard_that_was_moved_or_written_again(place, tmp_path):
    """Where shards are does not matter; one of another size is another one."""
    ds = touchfs.open(place)
    came = [sample.key for sample in islice(ds, 8)]
    state = ds.state_dict()
    os.rename(place, tmp_path / "moved")
    write(tmp_path / "moved", "o", count=7)
    ds = touchfs.open(tmp_path / "moved")
    with pytest.warns(UserWarning, match=r"4 samples of the old order left, then 7 new samples; 6 samples lost"):
        ds.load_state_dict(state, extend=True)
    came += [sample.key for sample in ds]
    assert sorted(came) == sorted(key_set("m", "n") | key_set("o", count=7))


def test_samples_chosen_by_position_are_refused(place):
    ds = touchfs.open(place).take(9)
    next(iter(ds))
    state = ds.state_dict()
    write(place, "a")
    with pytest.raises(UsageError, match="chosen by position: its states go on over the same items only"):
        touchfs.open(place).take(10).load_state_dict(state, extend=True)


def test_a_set_that_has_gone_on_makes_loaders(place):
    ds = touchfs.open(place).shuffle(7)
    came = [sample.key for sample in islice(ds, 5)]
    state = ds.state_dict()
    write(place, "a")
    ds = touchfs.open(place).shuffle(7)
    with pytest.warns(UserWarning):
        ds.load_state_dict(state, extend=True)
    came += [sample.key for batch in ds.loader(4, collate_fn=list) for sample in batch]
    assert sorted(came) == sorted(key_set("m", "n", "o", "a"))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_of_a_mixture_goes_on_and_each_source_as_it_would_alone(place, tmp_path, workers):
    write(tmp_path / "other", "x", "y")

    def sources():
        return touchfs.open(place).shuffle(7), touchfs.open(tmp_path / "other").shuffle(8)

    def loader():
        first, second = sources()
        mixed = touchfs.mux([(first, 2), (second, 1)]).map(key_of)
        return mixed.loader(global_batch=6, num_workers=workers, rank=0, world_size=1, collate_fn=list)

    old = loader()
    came = [*chain.from_iterable(islice(old, 2))]
    alone = sources()
    seen = [[key_of(sample) for sample in islice(ds, count)] for ds, count in zip(alone, (8, 4), strict=True)]
    states = [ds.state_dict() for ds in alone]
    state = old.state_dict()
    grow(place)
    write(tmp_path / "other", "w")
    new, (first, second) = loader(), sources()
    with pytest.raises(UsageError, match="if only shards were added or removed or weights changed, load_state_dict"):
        new.load_state_dict(state)
    with pytest.warns(UserWarning, match=r"source 0: \d+ samples .* then 10 new .* lost .*; source 1: 8 .* then 6 new"):
        new.load_state_dict(state, extend=True)
    came += chain.from_iterable(islice(new, 3))
    state = new.state_dict()
    new = loader()
    new.load_state_dict(state)
    for _ in range(2):  # through the end of an epoch
        came += chain.from_iterable(new)
    for ds, keys, own_state in zip((first, second), seen, states, strict=True):
        with pytest.warns(UserWarning, match="of the old order left"):
            ds.load_state_dict(own_state, extend=True)
        keys += [key_of(sample) for _ in range(3) for sample in ds]
    for keys, names in zip(seen, ("mnoaz", "xyw"), strict=True):
        of_source = [key for key in came if key[0] in names]
        assert of_source == keys[: len(of_source)] and len(of_source) > 20


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_of_items_goes_on_with_a_mixture_into_its_next_epochs(place, tmp_path, workers):
    write(tmp_path / "other", "x", "y")

    def mixed():
        mixture = touchfs.mux([(touchfs.open(place).shuffle(7), 2), (touchfs.open(tmp_path / "other").shuffle(8), 1)])
        return mixture.map(key_of).filter(bool)

    old, old_loader = mixed(), mixed().loader(3, collate_fn=list)
    list(islice(old, 6))
    state = old.state_dict()
    [*islice(old_loader, 2)]
    grow(place)
    with pytest.warns(UserWarning, match="source 0: "):
        (whole := mixed()).load_state_dict(state, extend=True)
    epochs = [list(whole) for _ in range(3)]
    loader = mixed().loader(4, num_workers=workers, collate_fn=list)
    with pytest.warns(UserWarning, match="of the old order left"):
        loader.load_state_dict(old_loader.state_dict(), extend=True)
    for number, keys in enumerate(epochs):
        batches = iter(loader)
        came = next(batches)
        saved = loader.state_dict()
        came += chain.from_iterable(batches)
        assert sorted(came) == sorted(keys)
        if number == 1:  # a state of the loader itself, which its workers load
            again = mixed().loader(4, num_workers=workers, collate_fn=list)
            again.load_state_dict(saved)
            rest = [*chain.from_iterable(again)]
            assert sorted(rest) == sorted(came[4:])
            assert sorted(chain.from_iterable(again)) == sorted(epochs[2])


@pytest.mark.parametrize("options", [{}, {"shuffle_iters": True, "seed": 5}])
def test_the_sets_of_a_chain_go_on(place, tmp_path, options):
    write(tmp_path / "other", "x")

    def chained():
        of_place, other = (SampleSet.from_file(path, indexed=True) for path in (place, tmp_path / "other"))
        return of_place.chain(other, **options)

    ds = chained()
    came = [key_of(sample) for sample in islice(ds, 20)]
    state = ds.state_dict()
    write(place, "a")
    ds = chained()
    with pytest.warns(UserWarning, match="then 6 new samples"):
        ds.load_state_dict(state, extend=True)
    came += map(key_of, ds)
    assert sorted(came) == sorted(key_set("m", "n", "o", "x", "a"))
    assert {key[0] for key in came[24:]} == {"a"}


def test_the_loader_of_a_filtered_set_goes_on(place):
    def loader():
        return touchfs.open(place).shuffle(7).map(key_of).filter(is_early).loader(4, num_workers=2, collate_fn=list)

    old = loader()
    batches = iter(old)
    came = [*next(batches), *next(batches)]
    state = old.state_dict()
    write(place, "a")
    new = loader()
    with pytest.warns(UserWarning, match="samples of the old order left, then 6 new samples"):
        new.load_state_dict(state, extend=True)
    came += chain.from_iterable(new)
    assert sorted(came) == sorted(key for key in key_set("m", "n", "o", "a") if is_early(key))


def is_early(key):
    return key[-1] < "4"
