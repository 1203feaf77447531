"""Options for reading shards. Catalogs depend on them, so each choice of options has its own catalogs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from touchfs.core.errors import ArgumentTypeError, UsageError
from touchfs.format.metainfo import RATE_MAX
from touchfs.limits import LIMITS, Limits
from touchfs.segments.json_rules import JSON_RULES
from touchfs.segments.sidecar import FILE_RULES

FIRST_DOT, LAST_DOT = "first-dot", "last-dot"
# Rules for segments: the first that finds some, or none at all.
FIRST_RULE, NO_RULE = "first", "none"
# Segments that a list has: Kaldi's `segments` or NeMo's manifest beside the shard, and the span of the line that names
# the audio.
KALDI_RULE, NEMO_RULE, LINE_RULE = "kaldi", "nemo", "line"
# Names of a table's files: `<key>.<extension>`, or `<key>/<column>.<extension>`.
FLAT, NESTED = "flat", "nested"
# All tars and Parquet files have interleaved samples.
INTERLEAVED = "interleaved"


# Policies for items whose bytes cannot be found: what becomes of the item and of its sample.
ERROR, WARN, DROP_ROW, DROP_SAMPLE = "error", "warn", "drop_row", "drop_sample"
ITEM_POLICIES = (ERROR, WARN, DROP_ROW, DROP_SAMPLE)


SEGMENT_RULES = (FIRST_RULE, *JSON_RULES, *FILE_RULES, KALDI_RULE, NEMO_RULE, LINE_RULE, NO_RULE)


class Decompress(Enum):
    """The time to decompress shards that are not in the scratch store yet. LATER means large ones: others now."""

    NOW = "now"
    LATER = "later"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Options:
    """Options for reading shards.

    `sample_rate` (Hz) applies to audio without a rate of its own; `key_rule` splits the names of tar members;
    `segments` is the rule that finds the segments of samples. Raises UsageError for values out of range, and
    ArgumentTypeError for features that are no text.

    For tables, `key_column` has the keys of samples (None: the first of `id`, `key` and `__key__`), `layout` says how
    files are named (None: `FLAT` if one column has files), and `features` is the JSON of the types of their columns
    (`touchfs.features`), which is preferred to what the table says itself.

    `split` is the split of the dataset whose shards are read (None: all shards), and `partition` has the values of the
    directories of one shard (`touchfs.tables.values.partition`). `overlays` are the tables whose columns are joined to
    samples (`touchfs.indexing.overlays.named.spell_overlay`): they change no catalog, but make more.

    Of interleaved samples, `kind` is `INTERLEAVED` if all shards have some (None: those whose first samples look like
    it), and `on_error` says what becomes of items without bytes. Only their own catalogs depend on these two.
    """

    sample_rate: int | None = None
    key_rule: str = FIRST_DOT
    decompress: Decompress = field(
        default=Decompress.NOW, repr=False
    )  # not in the name of a catalog, which is the same for all
    limits: Limits = LIMITS
    segments: str = FIRST_RULE
    key_column: str | None = field(default=None, repr=False)
    layout: str | None = field(default=None, repr=False)
    features: str | None = field(default=None, repr=False)
    kind: str | None = field(default=None, repr=False)
    on_error: str = field(default=ERROR, repr=False)
    split: str | None = field(default=None, repr=False)  # a shard has one catalog, with the others or without
    partition: str = field(default="", repr=False)
    overlays: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.sample_rate is not None and not 0 < self.sample_rate <= RATE_MAX:
            raise UsageError(f"a sample rate of {self.sample_rate} Hz")
        if self.key_rule not in (FIRST_DOT, LAST_DOT):
            raise UsageError(f"no rule for keys {self.key_rule!r}: there are {FIRST_DOT} and {LAST_DOT}")
        if self.segments not in SEGMENT_RULES:
            raise UsageError(f"no rule for segments {self.segments!r}: there are {', '.join(SEGMENT_RULES)}")
        if self.layout not in (None, FLAT, NESTED):
            raise UsageError(f"no layout {self.layout!r}: there are {FLAT} and {NESTED}")
        if not isinstance(self.features, str | None):
            kind = type(self.features).__name__
            raise ArgumentTypeError(
                f"the features of a table are given as text, such as json.dumps(features.to_json()), not as {kind}"
            )
        if not isinstance(self.split, str | None):
            raise ArgumentTypeError(f"a split is named by text, not by {type(self.split).__name__}")
        if self.kind not in (None, INTERLEAVED):
            raise UsageError(f"no kind {self.kind!r}: there is {INTERLEAVED}")
        if self.on_error not in ITEM_POLICIES:
            raise UsageError(f"no policy {self.on_error!r}: there are {', '.join(ITEM_POLICIES)}")

    @property
    def hashed(self) -> str:
        """The text that is hashed for the names of catalogs, so it never changes for the same options."""
        later = {
            "audio_root": self.limits.audio,
            "members": None if self.limits.members == LIMITS.members else self.limits.members,
            "key_column": self.key_column,
            "layout": self.layout,
            "features": self.features,
            "partition": self.partition or None,
        }
        return str(self) + "".join(f"\0{name}={value}" for name, value in later.items() if value is not None)

    @property
    def hashed_of_items(self) -> str:
        """The text that is hashed for the names of catalogs of interleaved samples, besides `hashed`."""
        return "\0".join((self.kind or "", self.on_error, *self.limits.locations))


DEFAULT = Options()
