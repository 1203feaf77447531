"""The cache of everything: what stays, who makes a value and who waits, and what a fork has."""

import os
import pickle
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from touchfs.posix import bounded_cache
from touchfs.posix.bounded_cache import BoundedCache

KEYS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["find", "pop"]), KEYS, st.just(0)),
        st.tuples(st.sampled_from(["keep", "get"]), KEYS, st.integers(1, 9)),
        st.tuples(st.just("forget"), st.just(0), st.just(0)),
    )
)


class Model:
    """The same in the plainest way: values are their own sizes."""

    def __init__(self, most: int, by_size: bool) -> None:
        self.most, self.by_size = most, by_size
        self.kept: OrderedDict[int, int] = OrderedDict()
        self.gone: list[int] = []

    def find(self, key: int, _: int) -> int | None:
        if key in self.kept:
            self.kept.move_to_end(key)
        return self.kept.get(key)

    def pop(self, key: int, _: int) -> int | None:
        return self.kept.pop(key, None)

    def keep(self, key: int, value: int) -> None:
        if key in self.kept:
            self.gone.append(self.kept.pop(key))
        self.kept[key] = value
        while len(self.kept) > 1 and (sum(self.kept.values()) if self.by_size else len(self.kept)) > self.most:
            self.gone.append(self.kept.popitem(last=False)[1])

    def get(self, key: int, value: int) -> int | None:
        if self.find(key, 0) is None:
            self.keep(key, value)
        return self.kept[key]

    def forget(self, *_: int) -> None:
        self.gone += self.kept.values()
        self.kept.clear()


@given(st.integers(1, 20), st.booleans(), STEPS)
def test_it_does_what_its_model_does(most: int, by_size: bool, steps: list[tuple[str, int, int]]) -> None:
    gone: list[int] = []
    cache: BoundedCache[int, int] = BoundedCache(most, int if by_size else None, gone.append)
    model = Model(most, by_size)
    for name, key, value in steps:
        arguments: dict[str, tuple[Any, ...]] = {"keep": (key, value), "get": (key, lambda value=value: value)}
        answer = getattr(cache, name)(*(() if name == "forget" else arguments.get(name, (key,))))
        assert answer == getattr(model, name)(key, value)
        assert cache.items() == list(model.kept.items())
        assert (len(cache), key in cache) == (len(model.kept), key in model.kept)
        assert gone == model.gone


def test_threads_that_ask_at_once_get_one_value() -> None:
    cache: BoundedCache[str, object] = BoundedCache(4)
    ready, made = threading.Barrier(8), []

    def ask() -> object:
        ready.wait()
        return cache.get("a", lambda: made.append(1) or object())

    with ThreadPoolExecutor(8) as pool:
        assert len({id(each.result()) for each in [pool.submit(ask) for _ in range(8)]}) == 1
    assert made == [1]


def test_threads_never_see_another_value() -> None:
    gone: list[int] = []
    cache: BoundedCache[int, int] = BoundedCache(30, lambda value: value // 100, gone.append)

    def work(first: int) -> None:
        for number in range(first, first + 3000):
            key = number % 17
            assert cache.get(key, lambda key=key: 100 * key + 100) == 100 * key + 100
            if not number % 7:
                cache.pop(key)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sum(value // 100 for _, value in cache.items()) == cache._size <= 30
    cache.forget()
    assert (cache._size, len(cache)) == (0, 0)


def test_nobody_waits_for_the_making_of_another_value() -> None:
    cache: BoundedCache[str, str] = BoundedCache(4)
    goes_on = threading.Event()
    slow = threading.Thread(target=lambda: cache.get("slow", lambda: str(goes_on.wait(60))))
    slow.start()
    assert cache.get("quick", lambda: "made") == "made"
    assert cache.find("slow") is None
    goes_on.set()
    slow.join()
    assert cache.find("slow") == "True"


def test_who_waits_gets_the_error_and_the_next_one_makes_it() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    making, goes_on = threading.Event(), threading.Event()

    def fail() -> int:
        making.set()
        goes_on.wait(60)
        return 1 // 0

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, "a", fail)
        making.wait(60)
        second = pool.submit(cache.get, "a", lambda: 7)
        [future] = bounded_cache._making.values()
        wait_until(lambda: future._condition._waiters)
        goes_on.set()
        assert isinstance(first.exception(), ZeroDivisionError)
        assert isinstance(second.exception(), ZeroDivisionError)
    assert cache.get("a", lambda: 7) == 7


def test_a_value_that_goes_may_use_the_cache() -> None:
    cache: BoundedCache[int, int] = BoundedCache(1, evicted=lambda value: seen.append(cache.find(value + 1)))
    seen: list[int | None] = []
    cache.keep(1, 1)
    cache.keep(2, 2)
    assert seen == [2]


def test_a_cache_is_sent_without_its_values() -> None:
    cache: BoundedCache[str, bytes] = BoundedCache(10, len)
    cache.keep("a", b"12345678")
    sent = pickle.loads(pickle.dumps(cache))
    sent.keep("b", b"1234567")
    sent.keep("c", b"1234567")
    assert sent.items() == [("c", b"1234567")]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_does_not_wait_for_threads_of_its_parent() -> None:
    cache: BoundedCache[str, str] = BoundedCache(2)
    cache.keep("b", "parent's")
    making, goes_on = threading.Event(), threading.Event()

    def make() -> str:
        making.set()
        return str(goes_on.wait(60))

    slow = threading.Thread(target=lambda: cache.get("a", make))
    slow.start()
    making.wait()
    pid = os.fork()
    if not pid:
        os._exit(0 if (cache.get("a", lambda: "own"), cache.find("b")) == ("own", "parent's") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    goes_on.set()
    slow.join()
