"""The base classes of samplers: the limit of a batch, and the buffered samples.

A batch is padded to its longest sample, so it costs count times longest. It is full when another sample as long as its
longest would cost more than `max_duration`, or when the next sample does. So no batch of two or more exceeds the limit,
and a sample that is too long by itself becomes a batch of its own. As long as no last sample makes a batch too long,
the rule is that of Lhotse's dynamic samplers.

Measuring a duration needs the sample, so a sample is measured once, when it enters the buffer. A state holds the tokens
and durations of the buffered samples, and resuming makes none of them before their batch. The buffer keeps samples as
they are, so let the source yield light ones (of a manifest), and decode in a `LazyMapper` over the batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import State, Token
from touchfs.node.core.foreign import maker
from touchfs.node.core.iteration import Make, Pair, same
from touchfs.node.core.iterator_node import (
    IteratorNode,
    children_of,
    kind_of,
    resolve_iterator_source,
    supports_graph_restore,
)
from touchfs.node.core.pair_node import name_of
from touchfs.node.core.saved import LARGEST, Saved
from touchfs.node.core.transform import BufferingNode, TransformIteration

# Decimal places of seconds: as Lhotse rounds, finer than any sampling rate, and short in a state.
DIGITS = 8


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a batch: `max_duration` bounds count times longest duration, `max_items` the count.

    Raises UsageError unless at least one is given, finite and above 0.
    """

    max_duration: float | None
    max_items: int | None

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.max_duration, self.max_items) if limit is not None]
        if not limits or not all(math.isfinite(limit) and limit > 0 for limit in limits):
            raise UsageError(f"a batch needs a max_duration or max_items above 0, not {limits or 'neither'}")

    def take(self, durations: Iterable[float]) -> int | None:
        """Return how many of these samples make a full batch, or None if they run out first."""
        longest = 0.0
        for count, duration in enumerate(durations, 1):
            longest = max(longest, duration)
            if count > 1 and self._exceeded(count, longest):
                return count - 1
            if self._exceeded(count + 1, longest):
                return count
        return None

    def _exceeded(self, count: int, longest: float) -> bool:
        return (self.max_items is not None and count > self.max_items) or (
            self.max_duration is not None and count * longest > self.max_duration
        )


@dataclass(frozen=True, slots=True)
class BufferedSample:
    """A sample in a sampler's buffer. `duration` is in seconds, or 0 if the sampler does not measure."""

    token: Token | None
    duration: float
    make: Make


class SamplerNode(BufferingNode):
    """A node that yields batches: lists of samples. The token of a batch is the tuple of its samples' tokens."""

    def __init__(
        self, source: Any, limit: Limit, drop_last: bool, duration: str | Callable[[Any], float], measured: bool = True
    ) -> None:
        _refuse_mixed(source)
        super().__init__(source)
        self.limit = limit
        self.drop_last = drop_last
        self.duration = duration
        # False if nothing depends on durations: samples are then made only together with their batch.
        self.measured = measured

    def make(self, token: Token) -> list[Any]:
        if not isinstance(token, tuple) or not token:
            raise TypeError(f"{kind_of(self)} expects tokens shaped like (source_token, …), not {token!r}")
        return list(map(maker(self.source), token))

    def config(self) -> State:
        return {
            "max_duration": self.limit.max_duration,
            "max_items": self.limit.max_items,
            "drop_last": self.drop_last,
            "duration": self.duration if isinstance(self.duration, str) else name_of(self.duration),
        }

    def measure(self, sample: Any) -> float:
        """Return the duration of a sample. Raises UsageError if it has none or the value is no duration."""
        try:
            value = getattr(sample, self.duration) if isinstance(self.duration, str) else self.duration(sample)
        except AttributeError as error:
            raise UsageError(
                f"{kind_of(sample)} objects have no {self.duration!r}: "
                f"give {kind_of(self)} a duration, the name of an attribute or a function of a sample"
            ) from error
        if not is_duration(value):
            raise UsageError(f"the duration of a sample is a finite number of 0 or more, not {value!r:.80}")
        return round(value if type(value) in (int, float) else float(value), DIGITS)


class SamplerIteration(TransformIteration):
    """`drained` means that the source has ended, and that its state is that of its next epoch."""

    node: SamplerNode

    def __init__(self, node: SamplerNode, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        self.drained = saved.flag("drained")

    def restored(self, saved: Saved) -> list[BufferedSample]:
        """Return the buffered samples of a state. Raises FormatError."""
        tokens = saved.tokens("waiting", LARGEST)
        durations = [] if saved.fresh else saved.get("durations")
        if not isinstance(durations, list) or len(durations) != len(tokens) or not all(map(is_duration, durations)):
            raise FormatError(f"{saved.where}.durations are not those of {len(tokens)} samples: the state is damaged")
        make = maker(self.node.source)
        return [
            BufferedSample(token, duration, partial(make, token))
            for token, duration in zip(tokens, durations, strict=True)
        ]

    def pull(self) -> BufferedSample | None:
        """Take the next sample of the source, or return None at its end."""
        pair = None if self.drained else next(self.source.pairs, None)
        if pair is None:
            self.drained = True
            return None
        token, make = pair
        if not self.node.measured:
            return BufferedSample(token, 0, make)
        sample = make()
        return BufferedSample(token, self.node.measure(sample), partial(same, sample))

    def buffer_position(self, samples: Iterable[BufferedSample]) -> State:
        """Return the position with these buffered samples."""
        samples = list(samples)
        return {
            **super().position(),
            "waiting": [sample.token for sample in samples],
            "durations": [sample.duration for sample in samples],
            "drained": self.drained,
        }


def batch_of(samples: list[BufferedSample]) -> Pair:
    """Return the pair of a batch; its token is None if a sample has none."""
    tokens = tuple(sample.token for sample in samples if sample.token is not None)
    return tokens if len(tokens) == len(samples) else None, partial(_make_all, [sample.make for sample in samples])


def _make_all(makes: list[Make]) -> list[Any]:
    return [make() for make in makes]


def is_duration(value: Any) -> bool:
    """Return True for a finite number of 0 or more of any type."""
    try:
        return not isinstance(value, bool | str | bytes) and math.isfinite(value) and value >= 0
    except (TypeError, OverflowError):
        return False


def _refuse_mixed(source: Any) -> None:
    leaves, left = list[Any](), [resolve_iterator_source(source)]
    while left:
        node = left.pop()
        children = children_of(node) if isinstance(node, IteratorNode) else []
        leaves.extend([] if children else [node])
        left.extend(children)
    streaming = {kind_of(leaf) for leaf in leaves if not supports_graph_restore(leaf)}
    if 0 < sum(map(supports_graph_restore, leaves)) < len(leaves):
        raise UsageError(
            f"a sampler over indexed data and {' and '.join(sorted(streaming))} together could not be restored, nor "
            "shared among workers: index all data, or use a sampler for each kind"
        )
