"""How a user wants shards to be read. Catalogs depend on it, so each choice has catalogs of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from touchfs.errors import UsageError
from touchfs.format.metainfo import RATE_MAX
from touchfs.limits import LIMITS, Limits

FIRST_DOT, LAST_DOT = "first-dot", "last-dot"


class Decompress(Enum):
    """When compressed shards are decompressed that are not in the scratch store."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Options:
    """`sample_rate` (Hz) is for audio that names none, `key_rule` for the names of a tar's members."""

    sample_rate: int | None = None
    key_rule: str = FIRST_DOT
    decompress: Decompress = field(default=Decompress.NOW, repr=False)  # catalogs, named by the rest, are the same
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        if self.sample_rate is not None and not 0 < self.sample_rate <= RATE_MAX:
            raise UsageError(f"a sample rate of {self.sample_rate} Hz")
        if self.key_rule not in (FIRST_DOT, LAST_DOT):
            raise UsageError(f"no rule for keys {self.key_rule!r}: there are {FIRST_DOT} and {LAST_DOT}")


DEFAULT = Options()
