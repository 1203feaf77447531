"""The spec of an iterator: a JSON object that selects samples and their order, and the graph of nodes built from it.

    select       "samples", "segments", "interleaved", "merged/PLAN", "tokens/PLAN", or a path below one:
                 "samples/SHARD", "segments/SHARD/DIRECTORY"
    where        a filter expression (touchfs.select.expression), over the facts of touchfs.select.facts
    shuffle      a seed, for a new order in each epoch; null keeps the dataset's own order
    window       with shuffle: its window in samples, or as a size like "2GB"; lanes: how many stand side by side
    repeat       how many repeats make one epoch, or true for an endless one; false is one
    rank, world_size, partition ("stride", "block", "batches"), tail ("keep", "drop", "pad")
    global_batch the samples of a batch of all ranks, for "batches"
    mux          instead of select and where: a list of objects with select, where, shuffle, repeat and weight
    weights      with mux: it mixes exactly by these weights, or an object of positions and weights from there on;
                 end: "repeat" or "stop", what happens when a source ends (touchfs.node.LazyMixture)
                 by: "seconds" or "tokens", if weights are of length
    max_duration, max_tokens, pack
                 a step is a batch of at most so many seconds or tokens (touchfs.node.LazyLengthBatcher); global_batch
                 counts such batches
    batch        samples, or batches by length, in a step
    output       the line of each sample: "path", "relpath" (from the root of the tree), "key", "json"
    extension    the extension of the file whose path that is; null for the first file of a sample

All fields are optional. A source of a mux without a seed of its own uses the seed of the whole spec, as does the mux.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from touchfs.core.errors import TouchfsError, UsageError
from touchfs.core.measure import SECONDS, TOKENS, check_limit, check_measure
from touchfs.core.token import from_json, to_json
from touchfs.node.batch.length_batcher import LazyLengthBatcher, unit_rule
from touchfs.node.core.pair_node import PairNode
from touchfs.node.leaf.manifest import LazyIndexedManifestIterator
from touchfs.node.order.batches import BATCHES, PARTITIONS, part_of
from touchfs.node.order.order import window_of
from touchfs.node.order.partition import TAILS
from touchfs.node.order.schedule import Schedule
from touchfs.node.order.windowed import MOST_LANES
from touchfs.node.transform.global_shuffle import LazyGlobalShuffle
from touchfs.node.transform.mixture import ENDS, LazyMixture
from touchfs.node.transform.multiplexer import LazyIteratorMultiplexer
from touchfs.node.transform.repeater import LazyRepeater
from touchfs.select.expression import parse_where
from touchfs.select.selection import AnySamples
from touchfs.select.selector import Selector
from touchfs.select.window import check_window, samples_in

BATCH_MAX = 100_000
PATHS = ("path", "relpath")
OUTPUTS = (*PATHS, "key", "json")
_REFUSED = "refused"
_SEED_MAX = (1 << 63) - 1
_TIMES_MAX = 1 << 31
_SOURCES_MAX = 64
_WEIGHT_MAX = 10**9

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MuxSource:
    """One of the sources of a mux."""

    select: str = "samples"
    where: str | None = None
    shuffle: int | None = None
    repeat: int | bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Spec:
    """A parsed spec. The module's docstring describes the fields."""

    select: str = "samples"
    where: str | None = None
    shuffle: int | None = None
    repeat: int | bool = False
    rank: int = 0
    world_size: int = 1
    partition: str = "stride"
    tail: str = "keep"
    global_batch: int | None = None
    window: int | str | None = None
    lanes: int = 1
    max_duration: float | None = None
    max_tokens: int | None = None
    pack: bool = False
    mux: tuple[MuxSource, ...] = ()
    weights: Mapping[int, Sequence[float]] | None = None
    end: str = "repeat"
    by: str | None = None
    batch: int = 1
    output: str = "path"
    extension: str | None = None

    @property
    def is_by_length(self) -> bool:
        return self.max_duration is not None or self.max_tokens is not None or self.pack

    def __str__(self) -> str:
        """Return all fields as JSON. Equal specs have equal texts."""
        value = asdict(self)
        if self.weights is not None:
            value["weights"] = {str(start): weights for start, weights in self.weights.items()}
        if self.mux:
            del value["select"], value["where"]
        # Texts of stores that do not know these have none of them.
        for name in (
            *("global_batch", "window", "lanes", "max_duration", "max_tokens", "pack"),
            *("weights", "end", "by", "extension"),
        ):
            if value[name] == getattr(_DEFAULTS, name):
                del value[name]
        return to_json(value)


_DEFAULTS = Spec()


def parse_spec(value: object) -> Spec:
    """Return the spec of a JSON object. Raises UsageError with the name of the wrong field and what it must be."""
    spec = _parse(Spec, value, "spec")
    if spec.mux and isinstance(value, Mapping) and (misplaced := {"select", "source", "where"} & set(value)):
        raise UsageError(f"spec: {' and '.join(sorted(misplaced))} belongs to the sources of a mux: put it there")
    if spec.weights is None:
        if spec.by is not None:
            raise UsageError("spec.by says of what the weights of a mux are: give weights, too")
        if spec.end != _DEFAULTS.end:
            raise UsageError("spec.end says how a mux with weights ends: give weights, too")
        if spec.mux and (spec.partition == BATCHES or spec.is_by_length):
            raise UsageError("spec: ranks share no batches of what is drawn: give the weights of the mux as weights")
    else:
        if any(part.weight != 1 or part.repeat for part in spec.mux):
            raise UsageError("spec.weights are of all sources of the mux: leave out their weight and repeat")
        Schedule(len(spec.mux), spec.weights, 0)
    if spec.is_by_length:
        unit_rule(spec.max_duration, spec.max_tokens, spec.pack)
        if spec.partition == "block":
            raise UsageError('spec: batches by length are no block: let partition be "batches", or leave it out')
    part_of(spec.rank, spec.world_size, spec.partition, spec.tail, spec.global_batch, 1 if spec.mux else spec.lanes)
    seed = next((seed for seed in (spec.shuffle, *(part.shuffle for part in spec.mux)) if seed is not None), None)
    window_of(seed, None if spec.window is None else spec.lanes, spec.lanes)
    if spec.extension is not None and spec.output not in PATHS:
        raise UsageError(f"spec: extension chooses a path, and output is {spec.output}: leave out one of them")
    return spec


def stored_spec(text: str) -> Spec:
    """Return the spec of a text in the store. Raises UsageError if it is damaged, as it was checked when written."""
    try:
        value = from_json(text)
        if isinstance(value, dict):
            value = {name: field for name, field in value.items() if name != _REFUSED}
        return parse_spec(value)
    except TouchfsError as error:
        raise UsageError(f"its spec is damaged, write it again: {error}") from error


def is_written(text: str) -> bool:
    """Return True if a text in the store is a spec that somebody wrote."""
    try:
        spec = stored_spec(text)
    except UsageError:
        return True  # it is damaged
    return refusal_of(text) is None and text != unwritten(spec.batch)


def unwritten(batch: int = 1) -> str:
    """Return the text in the store of an iterator that nobody has written a spec for."""
    return to_json({"batch": batch})


def refused(reason: str, batch: int) -> str:
    """Return the text in the store of an iterator whose only specs were refused: it makes no steps."""
    return to_json({_REFUSED: reason, "batch": batch})


def refusal_of(text: str) -> str | None:
    """Return why the specs of an iterator were refused, if it has no other one."""
    value = from_json(text)
    return str(value[_REFUSED]) if isinstance(value, dict) and _REFUSED in value else None


def with_batch(text: str, spec: Spec) -> str:
    """Return a text in the store with the batch of this spec. Written, unwritten or refused, it stays so."""
    if (reason := refusal_of(text)) is not None:
        return refused(reason, spec.batch)
    return str(spec) if is_written(text) else unwritten(spec.batch)


def is_same_pass(spec: Spec, other: Spec) -> bool:
    """Return True if two specs visit the same samples in the same order: they differ at most in their lines."""
    # Compared as texts: True and 1 are equal in Python, but different values of `repeat`.
    return str(_normalized(spec)) == str(_normalized(other))


def _normalized(spec: Spec) -> Spec:
    mux = tuple(replace(part, where=_canonical(part.where)) for part in spec.mux)
    return replace(spec, where=_canonical(spec.where), mux=mux, batch=1, output="path", extension=None)


def _canonical(where: str | None) -> str | None:
    return None if where is None else str(parse_where(where))


def select_samples(spec: Spec, selector: Selector) -> list[AnySamples]:
    """Return the samples of each source of a spec. Raises UsageError if it selects something that does not exist."""
    return [selector.select(part.select, part.where) for part in _parts(spec)]


def build_graph(spec: Spec, samples: Sequence[AnySamples]) -> PairNode:
    """Return the graph of a spec over the samples of its sources."""
    ranks: dict[str, Any] = {
        "rank": spec.rank,
        "world_size": spec.world_size,
        "partition": spec.partition,
        "tail": spec.tail,
        "global_batch": spec.global_batch,
    }
    of_sources = ranks if spec.weights is None and not spec.is_by_length else {}
    parts = [_part(spec, part, each, of_sources) for part, each in zip(_parts(spec), samples, strict=True)]
    return _repeated(_batched(spec, _joined(spec, parts, ranks), ranks), spec.repeat)


def _joined(spec: Spec, parts: Sequence[PairNode], ranks: Mapping[str, Any]) -> PairNode:
    if not spec.mux:
        return parts[0]
    if spec.weights is not None:
        order = {} if spec.is_by_length else ranks
        return LazyMixture(*parts, weights=spec.weights, seed=spec.shuffle or 0, end=spec.end, by=spec.by, **order)
    return LazyIteratorMultiplexer(*parts, weights=[part.weight for part in spec.mux], seed=spec.shuffle or 0)


def _batched(spec: Spec, node: PairNode, ranks: Mapping[str, Any]) -> PairNode:
    if not spec.is_by_length:
        return node
    order = {name: value for name, value in ranks.items() if name != "partition"}
    return LazyLengthBatcher(node, spec.max_duration, spec.max_tokens, spec.pack, **order)


def _parts(spec: Spec) -> tuple[MuxSource, ...]:
    return spec.mux or (MuxSource(spec.select, spec.where, spec.shuffle),)


def _part(spec: Spec, part: MuxSource, samples: AnySamples, order: Mapping[str, Any]) -> PairNode:
    seed = spec.shuffle if part.shuffle is None else part.shuffle
    if seed is None:
        return _repeated(LazyIndexedManifestIterator(samples, **order), part.repeat)
    window: dict[str, Any] = (
        {} if spec.window is None else {"window": samples_in(spec.window, samples), "lanes": spec.lanes}
    )
    return _repeated(LazyGlobalShuffle(LazyIndexedManifestIterator(samples), seed, **order, **window), part.repeat)


def _repeated(node: PairNode, repeat: int | bool) -> PairNode:
    return node if repeat is False else LazyRepeater(node, None if repeat is True else repeat)


def _parse(kind: type[T], value: object, where: str) -> T:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} is a JSON object, not {value!r:.80}")
    if "select" not in value:  # stores of version 5 may have its old name
        value = {"select" if name == "source" else name: field for name, field in value.items()}
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if unknown := [name for name in value if name not in known]:
        raise UsageError(f"{where}: there is no {unknown[0]!r:.80}: there are {', '.join(known)}")
    return kind(**{name: _CHECKS[name](field, f"{where}.{name}") for name, field in value.items()})


def check_batch(value: object, where: str) -> int:
    """Return the value of `batch`. Raises UsageError unless it is an integer in range; `where` is named in it."""
    return _integer(1, BATCH_MAX)(value, where)


def _integer(least: int, most: int) -> Callable[[object, str], int]:
    def check(value: object, where: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise UsageError(f"{where} is an integer from {least} to {most}, not {value!r:.80}")
        return value

    return check


def _seed(value: object, where: str) -> int | None:
    return None if value is None else _integer(0, _SEED_MAX)(value, where)


def _times(value: object, where: str) -> int | bool:
    return value if isinstance(value, bool) else _integer(1, _TIMES_MAX)(value, where)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where} is a string, not {value!r:.80}")
    return check_name(value, where)


def check_name(name: str, where: str) -> str:
    """Return a string that can be a file name. Raises UsageError for half a surrogate pair, which JSON can express."""
    try:
        name.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise UsageError(f"{where}: nothing is called {name!r:.80}") from None
    return name


def _text_or_null(value: object, where: str) -> str | None:
    return None if value is None else _text(value, where)


def _count_or_null(value: object, where: str) -> int | None:
    return None if value is None else _integer(1, BATCH_MAX)(value, where)


def _duration_or_null(value: object, where: str) -> float | None:
    return None if value is None else float(check_limit(value, SECONDS, where))


def _tokens_or_null(value: object, where: str) -> int | None:
    return None if value is None else int(check_limit(value, TOKENS, where))


def _measure_or_null(value: object, where: str) -> str | None:
    return None if value is None else check_measure(value, where)


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{where} is true or false, not {value!r:.80}")
    return value


def _window_or_null(value: object, where: str) -> int | str | None:
    return None if value is None else check_window(value, where)


def _one_of(*names: str) -> Callable[[object, str], str]:
    def check(value: object, where: str) -> str:
        if value not in names:
            raise UsageError(f"{where} is one of {', '.join(names)}, not {value!r:.80}")
        return str(value)

    return check


def _weight(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _WEIGHT_MAX:
        raise UsageError(f"{where} is a number above 0, at most {_WEIGHT_MAX}, not {value!r:.80}")
    return float(value)


def _weights(value: object, where: str) -> Mapping[int, Sequence[float]] | None:
    stretches = {"0": value} if isinstance(value, list) else value
    if value is None:
        return None
    if (
        not isinstance(stretches, Mapping)
        or not all(re.fullmatch("[0-9]{1,18}", str(start)) for start in stretches)
        or not all(isinstance(weights, list) for weights in stretches.values())
    ):
        raise UsageError(
            f'{where} is a list of weights, or an object such as {{"0": [3, 1], "50000": [1, 1]}}, not {value!r:.80}'
        )
    return {int(start): weights for start, weights in stretches.items()}


def _mux_sources(value: object, where: str) -> tuple[MuxSource, ...]:
    if not isinstance(value, list) or len(value) > _SOURCES_MAX:
        raise UsageError(f"{where} is a list of at most {_SOURCES_MAX} objects, not {value!r:.80}")
    return tuple(_parse(MuxSource, part, f"{where}[{number}]") for number, part in enumerate(value))


_CHECKS: Mapping[str, Callable[[object, str], Any]] = {
    "select": _text,
    "where": _text_or_null,
    "shuffle": _seed,
    "repeat": _times,
    "rank": _integer(0, 1 << 20),
    "world_size": _integer(1, 1 << 20),
    "partition": _one_of(*PARTITIONS),
    "tail": _one_of(*TAILS),
    "global_batch": _count_or_null,
    "window": _window_or_null,
    "lanes": _integer(1, MOST_LANES),
    "max_duration": _duration_or_null,
    "max_tokens": _tokens_or_null,
    "pack": _flag,
    "mux": _mux_sources,
    "weight": _weight,
    "weights": _weights,
    "end": _one_of(*ENDS),
    "by": _measure_or_null,
    "batch": check_batch,
    "output": _one_of(*OUTPUTS),
    "extension": _text_or_null,
}
