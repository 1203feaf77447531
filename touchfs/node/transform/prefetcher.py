"""A prefetcher: threads make items ahead of time. Of samples, they have the files fetched.

The iterating thread walks the source's tokens, which is cheap; only the making of items goes to the threads. The state
holds the tokens submitted and not delivered, which a resumed iteration submits again. So saving never waits, no
computed item is saved, and the position is always that of the last delivered item.

A node above may buffer the delivered functions and call them later, even after the source has ended. So the threads
finish everything submitted, unless the iteration is abandoned: then they stop, and a later call makes the item itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from itertools import count
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token
from touchfs.dataset.sample import Sample
from touchfs.node.core.foreign import maker
from touchfs.node.core.iteration import Make, Pair
from touchfs.node.core.saved import Saved
from touchfs.node.core.transform import BufferingNode, TransformIteration
from touchfs.node.transform.sample_files import FetchRoom, fetch_files
from touchfs.posix.threads import ThreadPool


class LazyPrefetcher(BufferingNode):
    """The items of `source`, made in `threads` threads, at most `ahead` items before they are taken.

    To make a sample reads nothing, so the threads also have its files fetched: those at a URL are asked for, as far as
    the cache has room for them, all others are read. Tokens and order are those of the source, which must rebuild items
    from tokens to be saved.
    """

    def __init__(self, source: Any, ahead: int = 16, threads: int = 4) -> None:
        check_numbers(ahead, threads)
        super().__init__(source)
        self.ahead = ahead
        self.threads = threads

    def iteration(self, epoch: int, saved: Saved) -> PrefetcherIteration:
        return PrefetcherIteration(self, epoch, saved)

    def config(self) -> State:
        return {"ahead": self.ahead}


class PrefetcherIteration(TransformIteration):
    """`drained` means that the source has ended, and that its state is that of its next epoch."""

    node: LazyPrefetcher

    def __init__(self, node: LazyPrefetcher, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        make = maker(node.source)
        # From a state; submitted when the first item is requested.
        self.waiting: deque[tuple[Token | None, Make]] = deque(
            (token, partial(make, token)) for token in saved.tokens("ahead", node.ahead)
        )
        self.window: deque[Pair] = deque()
        self.drained = saved.flag("drained")

    def walk(self) -> Iterator[Pair]:
        pool, room, numbers = ThreadPool(self.node.threads, "touchfs-prefetch"), FetchRoom(self.node.threads), count()
        try:
            while True:
                while len(self.window) < self.node.ahead and (pair := self._next()) is not None:
                    token, make = pair
                    call = pool.submit(make_ahead, make, partial(room.fetch, next(numbers)))
                    self.window.append((token, partial(_made, call, make)))
                if not self.window:
                    break
                room.take()
                yield self.window.popleft()
        except BaseException:
            pool.cancel()
            room.close()
            raise
        pool.finish()

    def _next(self) -> Pair | None:
        if self.waiting:
            return self.waiting.popleft()
        pair = None if self.drained else next(self.source.pairs, None)
        self.drained = pair is None
        return pair

    def position(self) -> State:
        tokens = [token for token, _ in self.window] + [token for token, _ in self.waiting]
        return {**super().position(), "ahead": tokens, "drained": self.drained}


def check_numbers(ahead: int, threads: int) -> None:
    """Raise UsageError unless both are integers from 1 on."""
    if any(type(number) is not int or number < 1 for number in (ahead, threads)):
        raise UsageError(f"prefetching makes 1 or more items ahead, in 1 or more threads, not {ahead!r} in {threads!r}")


def make_ahead(make: Make, fetch: Callable[[Sample], object] = fetch_files) -> Any:
    """Return the item that `make()` makes. If it is a sample, its files are being fetched then."""
    item = make()
    if isinstance(item, Sample):
        fetch(item)
    return item


def _made(future: Future[Any], make: Make) -> Any:
    try:
        return future.result()
    except CancelledError:
        if not future.cancelled():  # an error of the item itself
            raise
        return make()
