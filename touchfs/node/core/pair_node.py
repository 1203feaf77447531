"""The base class of this package's nodes, which pass tokens and the functions that make items, not items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State, Token, read_token
from touchfs.node.core.iteration import ENDED, EndOfPass, Iteration, Pair
from touchfs.node.core.iterator_node import IteratorNode, kind_of, refuse_state
from touchfs.node.core.origin import with_token
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import FRESH, Saved
from touchfs.node.core.scope import Track, TrackedPairs, current_scope
from touchfs.node.core.seed import DrawnSeed

EXTEND = "load_state_dict(state, extend=True), or --extend"

# The classes of each name by their module, the latest of each: states hold names, and `merge_states` has no graph.
NODE_CLASSES: defaultdict[str, dict[str, type[PairNode]]] = defaultdict(dict)


class PairNode(IteratorNode, ABC):
    """Base class of the nodes of this package, and of your own nodes that pass tokens along.

    Implement `iteration` and `make`; override `obstacle`, `config`, `locate` and `merge` as needed.
    """

    # An integer in nodes that draw random numbers.
    seed: Any = None
    _track: Track

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        NODE_CLASSES[cls.__name__][cls.__module__] = cls

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

    @property
    def recorded(self) -> PairNode:
        """The node whose class and parameters states hold: this one, unless it only prepares another."""
        return self

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

    def relocate(self, state: State, token: Token) -> State:
        """Return the state from which the item of a leaf's `token` comes next, in the epoch (and repeat) of `state`.

        Raises UsageError as `locate`.
        """
        return self.locate(token, self.epoch_of(state))

    def epoch_of(self, state: State) -> int:
        """Return the epoch of a state of this node. For a repeater, each repeat is one."""
        return int(state["epoch"])

    def progress(self, state: State) -> tuple[int, int | None]:
        """Return (position, length): how far a state is within `epoch_of`. The length of an endless epoch is None."""
        return self.total_progress(state)

    def total_progress(self, state: State) -> tuple[int, int | None]:
        """Return (position, length) of a state as `progress`, but of a repeater over all its repeats.

        Raises UsageError for a node whose states do not tell.
        """
        raise UsageError(f"the states of a {kind_of(self)} do not tell how far it is")

    def paths(self, tokens: Sequence[Token]) -> list[bytes]:
        """Return the path of the first file of the sample of each of `tokens`, relative to the root of the tree."""
        return [self.make(token).first_path() for token in tokens]

    def read(self, extension: str, tokens: Sequence[Any]) -> list[bytes]:
        """Return the bytes of the file with an `extension` of the sample of each of `tokens`."""
        return [self.make(read_token(token))[extension] for token in tokens]

    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        """Return the position from which any number of ranks can resume, given the states of all old ranks.

        Raises UsageError for states that cannot be merged, by default for all: a position is one rank's own.
        """
        ranks.refuse()

    def extended(self, saved: Saved) -> State:
        """Return a state that goes on where `saved`, over other shards, was: with what is left, then with what is new.

        Raises UsageError for a state of another graph, and for nodes that cannot go on so, by default all.
        """
        raise UsageError(
            f"{saved.where}: a {kind_of(self)} cannot go on over a dataset with other shards: datasets, shuffled, "
            "filtered, mapped, chained and mixed, can"
        )

    def end_of_pass(self, saved: Saved) -> State:
        """Return the state of the end of the epoch before `saved`, which is the start of one, over any shards.

        Raises UsageError for nodes without such states, by default all.
        """
        return PairNode.extended(self, saved)

    def goes_on_with_other(self, name: str) -> bool:
        """Return True if `extended` may go on where the field `name` of `config` differs."""
        return False

    def begin(self, epoch: int = 0, saved: Saved = FRESH) -> Iteration:
        """Return an iteration of `epoch`, or one that resumes at `saved`, whose epoch then counts.

        Raises FormatError for a damaged state, UsageError for one of another graph or dataset.
        """
        if not saved.fresh:
            self._check(saved)
            epoch = saved.integer("epoch")
        iteration = self.iteration(epoch, saved)
        if not saved.fresh:
            saved.refuse_others(("node", "config", "epoch", "given_seed", ENDED, *iteration.position()))
        if not saved.has(ENDED):
            return iteration
        if not (saved.flag(ENDED) and epoch):
            raise FormatError(f"{saved.where} is the end of no epoch: the state is damaged")
        return EndOfPass(self, epoch - 1)

    def pairs(self) -> Iterator[Pair]:
        """Iterate as `iter` does, but over (token, function that makes the item)."""
        track = self._current_track()
        iteration, track.loaded = self._loaded(track) or self.begin(track.epoch), None
        track.latest = iteration
        return TrackedPairs(iteration, track)

    def __iter__(self) -> Iterator[Any]:
        return Items(self.pairs())

    def __getitem__(self, token: Any) -> Any:
        token = read_token(token)
        return with_token(self.make(token), token)

    def state_dict(self) -> State:
        """Return the position of the iteration begun or advanced last, or else where the next one begins."""
        track = self._current_track()
        return (track.latest or self._loaded(track) or self.begin(track.epoch)).own_state()

    def load_state_dict(self, state: State, extend: bool = False) -> None:
        """Make the next `iter` start at `state`; later ones begin epochs as usual. Raises as `begin`.

        With `extend`, the state may be over other shards of the dataset: what is left there comes first, and then what
        is new (`extended`).
        """
        if not self.is_checkpointable:
            refuse_state(self, self.obstacle())
        if state is None:
            raise UsageError(f"{kind_of(self)}: there is no state to load")
        if extend:
            state = self.extended(Saved(state))
        track = self._current_track()
        track.loaded, track.latest, track.unbegun = self.begin(saved=Saved(state)), None, None
        track.epoch = track.loaded.epoch

    def next_start(self) -> tuple[int, State | None]:
        """Return the epoch that the next `iter` begins, and the state that it begins at if one was loaded."""
        return self._current_track().next_start()

    def _loaded(self, track: Track) -> Iteration | None:
        if track.unbegun is not None:
            track.loaded, track.unbegun = self.begin(saved=Saved(track.unbegun)), None
        return track.loaded

    def _current_track(self) -> Track:
        scope = current_scope.get()
        if scope is not None:
            return scope.track(self)
        if "_track" not in self.__dict__:
            self._track = Track()
        return self._track

    def _check(self, saved: Saved, may_differ: Sequence[str] = ()) -> None:
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
            if there != here and name not in may_differ:
                remedy = "restore the graph and the dataset it is of"
                if self.goes_on_with_other(name):
                    remedy = f"{remedy}, or go on with what is left and then with what is new: {EXTEND}"
                if name == "seed":
                    remedy = "use no seed" if there is None else f"use seed {there!r:.200}"
                raise UsageError(
                    f"{saved.where} was saved with {name} = {there!r:.200}, here it is {here!r:.200}: {remedy}"
                )

    def __getstate__(self) -> State:
        # A copy in another process starts at the loaded state, not at the position of an iteration of this process.
        state = self.__dict__.copy()
        track: Track | None = state.pop("_track", None)
        if track is not None:
            state["_resume"] = track.next_start()
        return state

    def __setstate__(self, state: State) -> None:
        epoch, unbegun = state.pop("_resume", (0, None))
        self.__dict__.update(state)
        self._track = Track(epoch, unbegun)


class Items:
    """The items of pairs, each with its token attached.

    Not a generator: a generator ends when an item raises, and this must continue with the next item.
    """

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterator[Pair]) -> None:
        self._pairs = pairs

    def __iter__(self) -> Items:
        return self

    def __next__(self) -> Any:
        token, make = next(self._pairs)
        return with_token(make(), token)


def name_of(function: Callable[..., Any] | None) -> str | None:
    """Return the name under which a state records a function: the same in every process and every module."""
    function = getattr(function, "func", function)
    return None if function is None else getattr(function, "__name__", kind_of(function))
