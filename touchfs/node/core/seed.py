"""Seeds: integers, or drawn once when a node is made, where None or one of Lhotse's names is given instead.

A drawn seed belongs to one graph: its pickled copies and its shares for workers have it too, its states tell it, and a
graph that drew another one takes that of the state it loads. Ranks are processes that build their graphs apart, and
each would draw another one, so where there are ranks an integer must be given.
"""

from __future__ import annotations

import operator
import random
import secrets
from typing import Any, Literal, TypeAlias

from touchfs.errors import UsageError

Seed: TypeAlias = "int | Literal['randomized', 'trng'] | None"
SeedOrRng: TypeAlias = "Seed | random.Random"

NAMES = ("randomized", "trng")
# As many as Lhotse draws; torch and states hold them easily.
BITS = 31


class DrawnSeed(int):
    """A seed that was drawn. `given` is what stood for it: None, a name, or "rng" for a generator."""

    given: str | None

    def __new__(cls, value: int, given: str | None) -> DrawnSeed:
        seed = super().__new__(cls, value)
        seed.given = given
        return seed

    def __getnewargs__(self) -> tuple[int, str | None]:  # type: ignore[override]
        return int(self), self.given

    @property
    def differs_by_rank(self) -> bool:
        """A generator that the caller seeds may be the same in all ranks."""
        return self.given != "rng"


def resolve_seed(seed: Any, has_ranks: bool, takes_rng: bool = False) -> int:
    """The integer that is given, or one drawn in its place. With `has_ranks` UsageError refuses what is not given.

    "trng" asks the operating system; None and "randomized" draw from Python's `random`, so that `random.seed` counts.
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
    """As a state has it."""
    return None if seed is None else int(seed)


def check_seed(seed: Any, takes_rng: bool = False) -> None:
    """Raises UsageError if it cannot be one."""
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
    """The module `random` is one too, as in Lhotse."""
    return isinstance(seed, random.Random) or seed is random


def refuse_drawn(given: str | None) -> None:
    raise UsageError(f"seed={given!r} is drawn when a graph is made, so each rank has another one: give an integer")
