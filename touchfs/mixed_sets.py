"""`touchfs.mux`: several sets as one, exactly by weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.node.transform.mixture import LazyMixture
from touchfs.sample_set import SampleSet


def mux(
    sets: Sequence[tuple[Any, float]],
    *,
    seed: int = 0,
    weights: Mapping[int, Sequence[float]] | None = None,
    end: str = "repeat",
    by: str | None = None,
) -> SampleSet:
    """Mix `sets`, each with its weight: at every position each has come by its weight, to within one sample.

    `weights` maps positions, counted in samples of the mixture, to weights that hold from there on. `seed` decides
    which of equally due sets comes first. A set that ends goes on with its next epoch, or with `end="stop"` the epoch
    of the mixture ends there. With `by="seconds"` or `by="tokens"` weights are of the length of samples, not of their
    number. Sets are shuffled, filtered with `where` and mapped before. docs/orders.md has more.

    Raises UsageError for weights that are wrong, and for sets that are empty or have no order of their own.
    """
    if not all(isinstance(each, tuple) and len(each) == 2 for each in sets):
        raise UsageError("mux takes pairs of a set and its weight: mux([(a, 3), (b, 1)])")
    of_sets = {0: [weight for _, weight in sets]}
    return SampleSet(
        LazyMixture(*(each for each, _ in sets), weights=of_sets | dict(weights or {}), seed=seed, end=end, by=by)
    )
