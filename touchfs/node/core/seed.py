"""Seeds: given integers, or seeds drawn once when a node is made (for None and for Lhotse's names).

A drawn seed belongs to one graph: pickled copies and shares for workers keep it, states record it, and a graph with
another drawn seed takes the seed of the state that it loads. Ranks build their graphs in separate processes and would
each draw a different seed, so a graph of several ranks needs an integer.
"""

from __future__ import annotations

import operator
import random
import secrets
from typing import Any, Literal, TypeAlias

from touchfs.core.errors import UsageError

Seed: TypeAlias = "int | Literal['randomized', 'trng'] | None"
SeedOrRng: TypeAlias = "Seed | random.Random"

NAMES = ("randomized", "trng")
# As many as Lhotse draws; they fit into torch's and JSON's integers.
BITS = 31


class DrawnSeed(int):
    """A drawn seed. `given` is the argument that it replaces: None, a name, or "rng" for a generator."""

    given: str | None

    def __new__(cls, value: int, given: str | None) -> DrawnSeed:
        seed = super().__new__(cls, value)
        seed.given = given
        return seed

    def __getnewargs__(self) -> tuple[int, str | None]:  # type: ignore[override]
        return int(self), self.given

    @property
    def differs_by_rank(self) -> bool:
        """False for a generator from the caller, who may seed it alike in all ranks."""
        return self.given != "rng"


def resolve_seed(seed: Any, has_ranks: bool, takes_rng: bool = False) -> int:
    """Return the given integer, or draw one. With `has_ranks`, raises UsageError if it would have to be drawn.

    "trng" draws from the operating system; None and "randomized" from Python's `random`, so `random.seed` has effect.
    """
    check_seed(seed, takes_rng)
    if isinstance(seed, DrawnSeed):
        return seed
    if seed is None or isinstance(seed, str):
        if has_ranks:
            refuse_drawn(seed)
        return DrawnSeed(secrets.randbits(BITS) if seed == "trng" else random.getrandbits(BITS), seed)
    return DrawnSeed(seed.getrandbits(BITS), "rng") if _is_rng(seed) else operator.index(seed)


def plain_seed(seed: int | None) -> int | None:
    """Return a seed as a state holds it: a plain integer or None."""
    return None if seed is None else int(seed)


def check_seed(seed: Any, takes_rng: bool = False) -> None:
    """Raise UsageError for a value that is no seed."""
    if seed is None or (isinstance(seed, str) and seed in NAMES) or (takes_rng and _is_rng(seed)):
        return
    try:
        if isinstance(seed, bool):
            raise TypeError
        operator.index(seed)
    except TypeError:
        names = "an integer, None, 'randomized', 'trng'" + (" or a random.Random" if takes_rng else "")
        raise UsageError(f"a seed is one of {names}, not {seed!r:.80}") from None


def _is_rng(seed: Any) -> bool:
    """Return True for a generator; the module `random` counts as one, as in Lhotse."""
    return isinstance(seed, random.Random) or seed is random


def refuse_drawn(given: str | None) -> None:
    """Raise UsageError: each rank would draw a different seed."""
    raise UsageError(f"seed={given!r} is drawn when a graph is made, so each rank has a different one: give an integer")
