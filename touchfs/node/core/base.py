"""The node contract, and the base classes of this package's nodes.

A *node* describes which items to iterate and in which order. A *token* rebuilds one of its items, `node[token]`; a
*state* resumes an iteration. A node makes up to three separate promises:

    is_checkpointable           state_dict and load_state_dict resume exactly
    is_indexed                  the data below has random access
    has_constant_time_access    node[token] rebuilds an item without looking at any other

The position belongs to the iteration, not to the node. `begin` returns an `Iteration`: its `pairs` yield (token,
function that makes the item), and its `state()` may be called between any two pairs. Items are made only when needed:
a buffer holds tokens, and a slicer decodes nothing it skips. A token is None if no node below can rebuild items.

An epoch is a number, not a leftover in a node: a parent in epoch e begins its children in epoch e. A state taken
before StopIteration resumes in the same epoch, even if no item is left; a state taken after it begins the next epoch.
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
    """Base class of all nodes, including those of other packages (`touchfs.node.core.foreign`).

    A node keeps its children in the attribute `source` or `sources`.
    """

    @property
    def is_checkpointable(self) -> bool:
        """True if `state_dict` and `load_state_dict` resume exactly."""
        return False

    @property
    def is_indexed(self) -> bool:
        """True if the data below has random access."""
        return False

    @property
    def has_constant_time_access(self) -> bool:
        """True if `node[token]` rebuilds an item without looking at any other."""
        return False

    def __bool__(self) -> bool:
        # Without this, an empty node would be false, and a node without a length would raise.
        return True

    def __iter__(self) -> Iterator[Any]:
        """Iterate one epoch: the one after the last finished one, or from a loaded state on."""
        raise NotImplementedError

    def __getitem__(self, token: Any) -> Any:
        """Return the item of a token. Raises UsageError if this node cannot rebuild items."""
        raise UsageError(f"{kind_of(self)} cannot rebuild an item from a token")

    def state_dict(self) -> State:
        """Return the position as a JSON object. Raises UsageError if this node cannot be saved."""
        refuse_state(self)

    def load_state_dict(self, state: State) -> None:
        """Make the next `iter` start at a `state` from `state_dict`. Raises UsageError if it cannot be restored."""
        refuse_state(self)


class Iteration(ABC):
    """One pass over a node. Iterate it through `pairs`; `ended` becomes True at the end of the epoch."""

    def __init__(self, node: PairNode, epoch: int) -> None:
        self.node = node
        self.epoch = epoch
        # A copy: the node may later take another seed from a state.
        self.seed: Any = getattr(node, "seed", None)
        self.ended = False
        self._can_be_saved = False  # computed once, on the first `state()`: it inspects the whole graph below
        self.pairs = self._until_the_end()

    def _until_the_end(self) -> Iterator[Pair]:
        yield from self.walk()
        self.ended = True

    @abstractmethod
    def walk(self) -> Iterator[Pair]:
        """Yield the remaining pairs. Before each yield, the fields of the iteration must hold the next position."""

    def take(self, count: int) -> list[Token | None]:
        """Return the tokens of the next `count` pairs, fewer at the end. Do not mix with reading `pairs`."""
        return [token for token, _ in islice(self.pairs, count)]

    @abstractmethod
    def position(self) -> State:
        """Return the fields of the position as JSON, always under the same names."""

    def state(self) -> State:
        """Return the state that resumes here. Raises UsageError if the graph cannot be saved."""
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
    """Base class of the nodes of this package, and of your own nodes that pass tokens along.

    Implement `iteration` and `make`; override `obstacle`, `config` and `locate` as needed.
    """

    # An integer in nodes that draw random numbers.
    seed: Any = None
    _track: Track

    @abstractmethod
    def iteration(self, epoch: int, saved: Saved) -> Iteration:
        """Return an iteration that starts at `saved`, or at the start of the epoch if `saved` is fresh."""

    @abstractmethod
    def make(self, token: Token) -> Any:
        """Return the item of a token."""

    @property
    def is_checkpointable(self) -> bool:
        return self.obstacle() is None

    def obstacle(self) -> str | None:
        """Return why this node cannot be saved, or None if it can.

        For a source of any kind call `touchfs.node.core.foreign.obstacle`.
        """
        return None

    def config(self) -> State:
        """Return the parameters and properties of the data that a state must agree with."""
        return {}

    def described(self) -> list[Any]:
        """Return the nodes below that have no state of their own because `config` describes them."""
        return []

    def drawn_seeds(self) -> list[DrawnSeed]:
        """Return the drawn seeds in `config`."""
        return [self.seed] if isinstance(self.seed, DrawnSeed) else []

    def take_seeds(self, config: Saved) -> None:
        """Replace drawn seeds by those in the `config` of a state."""
        if isinstance(self.seed, DrawnSeed):
            self.seed = DrawnSeed(config.seed("seed"), self.seed.given)

    def locate(self, token: Token, epoch: int) -> State:
        """Return the state from which the item of `token` comes next, in an otherwise fresh epoch.

        Raises UsageError if this node cannot be positioned at a token.
        """
        raise UsageError(f"{kind_of(self)} cannot be positioned at a token: only a state can be restored")

    def begin(self, epoch: int = 0, saved: Saved = FRESH) -> Iteration:
        """Return an iteration of `epoch`, or one that resumes at `saved`, whose epoch then counts.

        Raises FormatError for a damaged state, UsageError for one of another graph or dataset.
        """
        if not saved.fresh:
            self._check(saved)
            epoch = saved.integer("epoch")
        iteration = self.iteration(epoch, saved)
        if not saved.fresh:
            saved.refuse_others(("node", "config", "epoch", "given_seed", *iteration.position()))
        return iteration

    def pairs(self) -> Iterator[Pair]:
        """Iterate as `iter` does, but over (token, function that makes the item)."""
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
        """Return the position of the iteration begun or advanced last, or else where the next one begins."""
        track = self._current_track()
        return (track.latest or track.loaded or self.begin(track.epoch)).state()

    def load_state_dict(self, state: State) -> None:
        """Make the next `iter` start at `state`; later ones begin epochs as usual. Raises as `begin`."""
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
        saved_config = saved.child("config")
        if self.drawn_seeds():
            self.take_seeds(saved_config)
        config = self.config()
        saved_config.refuse_others(config)
        for name, here in config.items():
            there = saved_config.get(name)
            if there != here:
                raise UsageError(
                    f"{saved.where} is of a {kind} with {name} = {there!r:.200}, here it is {here!r:.200}: "
                    "restore the graph and the dataset it is of"
                )

    def __getstate__(self) -> State:
        # A copy in another process starts at the loaded state, not at the position of an iteration of this process.
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
    """The pairs of an iteration, which records itself on the node's track so that the node knows its position."""

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
                # A generator that raised is exhausted, which would look like the end of the epoch.
                raise UsageError(
                    f"an iteration of {kind_of(iteration.node)} failed at an earlier item: start another from a state"
                ) from None
            # Two iterations that end the same epoch end it once.
            track.epoch = max(track.epoch, iteration.epoch + 1)
            raise


def same(item: Any) -> Any:
    """Return the item: `partial(same, item)` is the `Make` of an existing item."""
    return item


def kind_of(node: object) -> str:
    """Return the class name of a node, which states hold."""
    return type(node).__name__


def children_of(node: object) -> list[Any]:
    """Return the children of a node of any kind: its `sources`, or its `source`."""
    sources = getattr(node, "sources", None)
    return list(sources) if isinstance(sources, list | tuple) else [node.source] if hasattr(node, "source") else []


def name_of(function: Callable[..., Any] | None) -> str | None:
    """Return the name under which a state records a function: the same in every process and every module."""
    function = getattr(function, "func", function)
    return None if function is None else getattr(function, "__name__", kind_of(function))


def refuse_state(node: object, why: str | None = None) -> NoReturn:
    """Raise UsageError: the node is not checkpointable."""
    raise UsageError(f"{kind_of(node)} is not checkpointable: {why or 'it has no state'}")


def resolve_iterator_source(source: Any) -> Any:
    """Return the node that `source`, a wrapper such as `SampleSet`, keeps in `data`; return anything else unchanged."""
    data = None if isinstance(source, IteratorNode) else getattr(source, "data", None)
    return data if isinstance(data, IteratorNode) else source


def supports_graph_restore(source: Any) -> bool:
    """Return True if `source[token]` rebuilds an item directly."""
    return bool(getattr(source, "is_indexed", False) and getattr(source, "has_constant_time_access", False))
