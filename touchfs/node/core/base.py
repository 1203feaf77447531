"""The node contract, and what the nodes of this package have in common.

A *node* is a description: what to iterate, in what order. A *token* rebuilds one of its items, `node[token]`; a *state*
resumes an iteration. Three promises are told apart:

    is_checkpointable           state_dict and load_state_dict resume exactly
    is_indexed                  the data below has random access
    has_constant_time_access    node[token] rebuilds an item without looking at any other

Position lives in the iteration, not in the node. `begin` makes an `Iteration`: a generator of pairs of a token and a
function that makes the item, and a `state()` that can be asked between any two pairs. Items are made only when needed:
a buffer holds tokens, and a slicer decodes nothing it skips. A token is None where nothing below can rebuild items.

An epoch is a number, not something left behind in a node: a parent in epoch e begins its children in epoch e. The state
before the end of an epoch was seen resumes in it, even when no item is left; the state after is the start of the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NoReturn, TypeAlias

from touchfs.errors import UsageError
from touchfs.node.core.items import Items, with_token
from touchfs.node.core.saved import FRESH, Saved
from touchfs.node.core.scope import Track, current_scope
from touchfs.node.core.seed import DrawnSeed, plain_seed
from touchfs.token import State, Token, normalize_graph_token

Make: TypeAlias = Callable[[], Any]
Pair: TypeAlias = "tuple[Token | None, Make]"


class IteratorNode:
    """Base of all nodes, also of foreign ones (`touchfs.node.core.foreign`). Children are `source` or `sources`."""

    @property
    def is_checkpointable(self) -> bool:
        return False

    @property
    def is_indexed(self) -> bool:
        return False

    @property
    def has_constant_time_access(self) -> bool:
        return False

    def __bool__(self) -> bool:
        # Or a node with a length would be false when it is empty, and one without a length would raise.
        return True

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def __getitem__(self, token: Any) -> Any:
        raise UsageError(f"{kind_of(self)} cannot rebuild an item from a token")

    def state_dict(self) -> State:
        refuse_state(self)

    def load_state_dict(self, state: State) -> None:
        refuse_state(self)


class Iteration(ABC):
    """One pass over a node, which `pairs` goes through."""

    def __init__(self, node: PairNode, epoch: int) -> None:
        self.node = node
        self.epoch = epoch
        # The node may take another one from a state.
        self.seed: Any = getattr(node, "seed", None)
        self.ended = False
        self._can_be_saved = False  # until it was asked, once, as that looks at the whole graph below
        self.pairs = self._until_the_end()

    def _until_the_end(self) -> Iterator[Pair]:
        yield from self.walk()
        self.ended = True

    @abstractmethod
    def walk(self) -> Iterator[Pair]:
        """The pairs that are left. Before each yield, the iteration's own fields say where the next one begins."""

    def take(self, count: int) -> list[Token | None]:
        """The tokens of the next `count` pairs, fewer at the end. Of an iteration whose `pairs` are not asked for."""
        return [token for token, _ in islice(self.pairs, count)]

    @abstractmethod
    def position(self) -> State:
        """Those fields, of the same names at all times."""

    def state(self) -> State:
        self._can_be_saved = self._can_be_saved or self.node.is_checkpointable
        if not self._can_be_saved:
            refuse_state(self.node, self.node.obstacle())
        if self.ended:
            return self.node.begin(self.epoch + 1).state()
        config, state = self.node.config(), self.position()
        if "seed" in config:
            config["seed"] = plain_seed(self.seed)
        for seed in self.node.drawn_seeds():
            if seed.differs_by_rank:
                state["given_seed"] = seed.given
        return {"node": kind_of(self.node), "config": config, "epoch": self.epoch, **state}


class PairNode(IteratorNode, ABC):
    """A node of this package, or one that is written like them."""

    # An integer, of nodes that draw anything.
    seed: Any = None
    _track: Track

    @abstractmethod
    def iteration(self, epoch: int, saved: Saved) -> Iteration:
        """An iteration from where `saved` says, or from the start of an epoch."""

    @abstractmethod
    def make(self, token: Token) -> Any:
        """The item of a token."""

    @property
    def is_checkpointable(self) -> bool:
        return self.obstacle() is None

    def obstacle(self) -> str | None:
        """Why it cannot be saved, or None if it can. `touchfs.node.core.foreign.obstacle` asks this of sources."""
        return None

    def config(self) -> State:
        """What a state must agree with: parameters, and what is known of the data."""
        return {}

    def described(self) -> list[Any]:
        """The nodes below that have no states of their own, and are part of `config` instead."""
        return []

    def drawn_seeds(self) -> list[DrawnSeed]:
        """Those that `config` has."""
        return [self.seed] if isinstance(self.seed, DrawnSeed) else []

    def take_seeds(self, config: Saved) -> None:
        """Where `config` has drawn seeds, take those of a state."""
        if isinstance(self.seed, DrawnSeed):
            self.seed = DrawnSeed(config.seed("seed"), self.seed.given)

    def locate(self, token: Token, epoch: int) -> State:
        """The state from which the item of a token comes next, in an epoch that nothing was taken from."""
        raise UsageError(f"{kind_of(self)} cannot be positioned at a token: only a state tells where it is")

    def begin(self, epoch: int = 0, saved: Saved = FRESH) -> Iteration:
        if not saved.fresh:
            self._check(saved)
            epoch = saved.integer("epoch")
        iteration = self.iteration(epoch, saved)
        if not saved.fresh:
            saved.refuse_others(("node", "config", "epoch", "given_seed", *iteration.position()))
        return iteration

    def pairs(self) -> Iterator[Pair]:
        """What `iter` goes through, with tokens, and items not made before they are asked for."""
        track = self._current_track()
        iteration, track.loaded = track.loaded or self.begin(track.epoch), None
        track.latest = iteration
        return TrackedPairs(iteration, track)

    def __iter__(self) -> Iterator[Any]:
        return Items(self.pairs())

    def __getitem__(self, token: Any) -> Any:
        token = normalize_graph_token(token)
        return with_token(self.make(token), token)

    def state_dict(self) -> State:
        """Where the iteration is that was begun or advanced last, or where the next one will begin."""
        track = self._current_track()
        return (track.latest or track.loaded or self.begin(track.epoch)).state()

    def load_state_dict(self, state: State) -> None:
        """The next `iter` begins where the state says; those after it begin epochs as usual."""
        if not self.is_checkpointable:
            refuse_state(self, self.obstacle())
        if state is None:
            raise UsageError(f"{kind_of(self)}: there is no state to load")
        track = self._current_track()
        track.loaded, track.latest = self.begin(saved=Saved(state)), None
        track.epoch = track.loaded.epoch

    def _current_track(self) -> Track:
        scope = current_scope.get()
        if scope is not None:
            return scope.track(self)
        if "_track" not in self.__dict__:
            self._track = Track()
        return self._track

    def _check(self, saved: Saved) -> None:
        kind = kind_of(self)
        if saved.get("node") != kind:
            raise UsageError(
                f"{saved.where} is one of a {saved.get('node')!r:.80}, not of a {kind}: restore the graph it is of"
            )
        of_state = saved.child("config")
        if self.drawn_seeds():
            self.take_seeds(of_state)
        config = self.config()
        of_state.refuse_others(config)
        for name, here in config.items():
            there = of_state.get(name)
            if there != here:
                raise UsageError(
                    f"{saved.where} is of a {kind} with {name} = {there!r:.200}, here it is {here!r:.200}: "
                    "restore the graph and the dataset it is of"
                )

    def __getstate__(self) -> State:
        # A copy in another process begins where this one was told to, not where its iterations are.
        state = self.__dict__.copy()
        track: Track | None = state.pop("_track", None)
        if track is not None:
            state["_resume"] = (track.epoch, track.loaded and track.loaded.state())
        return state

    def __setstate__(self, state: State) -> None:
        epoch, loaded = state.pop("_resume", (0, None))
        self.__dict__.update(state)
        self._track = Track(epoch)
        if loaded is not None:
            self._track.loaded = self.begin(saved=Saved(loaded))


class TrackedPairs:
    """An iteration's pairs, for whoever asks the node where it is."""

    __slots__ = ("_iteration", "_track")

    def __init__(self, iteration: Iteration, track: Track) -> None:
        self._iteration = iteration
        self._track = track

    def __iter__(self) -> TrackedPairs:
        return self

    def __next__(self) -> Pair:
        iteration, track = self._iteration, self._track
        track.latest = iteration
        try:
            return next(iteration.pairs)
        except StopIteration:
            if not iteration.ended:
                # A generator that raised ends, which would pass for the end of the epoch.
                raise UsageError(
                    f"an iteration of {kind_of(iteration.node)} failed at an item before: begin another, from a state"
                ) from None
            # Two iterations that end the same epoch end it once.
            track.epoch = max(track.epoch, iteration.epoch + 1)
            raise


def same(item: Any) -> Any:
    """partial(same, item) is the `Make` of an item that is made already."""
    return item


def kind_of(node: object) -> str:
    return type(node).__name__


def children_of(node: object) -> list[Any]:
    sources = getattr(node, "sources", None)
    return list(sources) if isinstance(sources, list | tuple) else [node.source] if hasattr(node, "source") else []


def name_of(function: Callable[..., Any] | None) -> str | None:
    """How a state tells one function from another, the same in every process and wherever it is defined."""
    function = getattr(function, "func", function)
    return None if function is None else getattr(function, "__name__", kind_of(function))


def refuse_state(node: object, why: str | None = None) -> NoReturn:
    raise UsageError(f"{kind_of(node)} is not checkpointable: {why or 'it has no state'}")


def resolve_iterator_source(source: Any) -> Any:
    """The node inside a wrapper that keeps it in `data`; anything else as it is."""
    data = None if isinstance(source, IteratorNode) else getattr(source, "data", None)
    return data if isinstance(data, IteratorNode) else source


def supports_graph_restore(source: Any) -> bool:
    """Whether `source[token]` rebuilds an item directly."""
    return bool(getattr(source, "is_indexed", False) and getattr(source, "has_constant_time_access", False))
