"""A spec: what an iterator goes over and in what order, as a JSON object, and the graph of nodes that it stands for.

    source       "samples", "segments", "merged/PLAN", or a path below one: "samples/SHARD", "segments/SHARD/DIRECTORY"
    where        a filter expression (touchfs.select.expression), over the facts of touchfs.select.selection
    shuffle      a seed, for a new order in each epoch; null is the dataset's own order
    repeat       how many epochs make one, or true for no end; false is one
    rank, world_size, partition ("stride", "block"), tail ("keep", "drop", "pad")
    mux          instead of source and where: a list of objects of source, where, shuffle, repeat and weight
    batch        how many samples a step takes
    output       what it tells of each: "path", "relpath" (from the root of the tree), "key", "json"

All of them may be left out. Seeds of a mux and of its sources are those of the whole where they have none of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from touchfs.errors import UsageError
from touchfs.node.core.base import PairNode
from touchfs.node.leaf.manifest import LazyIndexedManifestIterator
from touchfs.node.order.partition import KINDS, TAILS, Partition
from touchfs.node.transform.multiplexer import LazyIteratorMultiplexer
from touchfs.node.transform.repeater import LazyRepeater
from touchfs.select.expression import parse_where
from touchfs.select.selection import Selector
from touchfs.token import to_json

BATCH_MAX = 100_000
OUTPUTS = ("path", "relpath", "key", "json")
_SEED_MAX = (1 << 63) - 1
_TIMES_MAX = 1 << 31
_SOURCES_MAX = 64
_WEIGHT_MAX = 10**9

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MuxSource:
    """One of the sources of a mux."""

    source: str = "samples"
    where: str | None = None
    shuffle: int | None = None
    repeat: int | bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Spec:
    source: str = "samples"
    where: str | None = None
    shuffle: int | None = None
    repeat: int | bool = False
    rank: int = 0
    world_size: int = 1
    partition: str = "stride"
    tail: str = "keep"
    mux: tuple[MuxSource, ...] = ()
    batch: int = 1
    output: str = "path"

    def __str__(self) -> str:
        """All of it as JSON, so that equal specs are equal texts."""
        told = asdict(self)
        if self.mux:
            del told["source"], told["where"]
        return to_json(told)


def parse_spec(told: object) -> Spec:
    """Raises UsageError that says which field is wrong, and what it must be."""
    spec = _parse(Spec, told, "spec")
    if spec.mux and isinstance(told, Mapping) and (given := {"source", "where"} & set(told)):
        raise UsageError(f"spec: {' and '.join(sorted(given))} is of the parts of a mux: put it there")
    Partition(spec.rank, spec.world_size, spec.partition, spec.tail)
    return spec


def is_same_pass(spec: Spec, other: Spec) -> bool:
    """Return whether two specs go over the same samples in the same order: they differ in batch and output at most."""
    # As texts: True and 1, which are equal, are two values of `repeat`.
    return str(_without_form(spec)) == str(_without_form(other))


def _without_form(spec: Spec) -> Spec:
    mux = tuple(replace(part, where=_canonical(part.where)) for part in spec.mux)
    return replace(spec, where=_canonical(spec.where), mux=mux, batch=1, output="path")


def _canonical(where: str | None) -> str | None:
    return None if where is None else str(parse_where(where))


def build_graph(spec: Spec, selector: Selector) -> PairNode:
    graph: PairNode
    if spec.mux:
        parts = [_leaf(spec, part.source, part.where, part.shuffle, part.repeat, selector) for part in spec.mux]
        graph = LazyIteratorMultiplexer(*parts, weights=[part.weight for part in spec.mux], seed=spec.shuffle or 0)
        return _repeated(graph, spec.repeat)
    return _leaf(spec, spec.source, spec.where, spec.shuffle, spec.repeat, selector)


def _leaf(
    spec: Spec, source: str, where: str | None, shuffle: int | None, repeat: int | bool, selector: Selector
) -> PairNode:
    seed = spec.shuffle if shuffle is None else shuffle
    leaf = LazyIndexedManifestIterator(
        selector.select(source, where),
        seed is not None,
        seed or 0,
        rank=spec.rank,
        world_size=spec.world_size,
        partition=spec.partition,
        tail=spec.tail,
    )
    return _repeated(leaf, repeat)


def _repeated(node: PairNode, repeat: int | bool) -> PairNode:
    return node if repeat is False else LazyRepeater(node, None if repeat is True else repeat)


def _parse(kind: type[T], told: object, where: str) -> T:
    if not isinstance(told, Mapping):
        raise UsageError(f"{where} is a JSON object, not {told!r:.80}")
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if unknown := [name for name in told if name not in known]:
        raise UsageError(f"{where}: there is no {unknown[0]!r:.80}: there are {', '.join(known)}")
    return kind(**{name: _CHECKS[name](value, f"{where}.{name}") for name, value in told.items()})


def check_batch(value: object, where: str) -> int:
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
    """JSON can spell what no file is called: half a surrogate pair."""
    try:
        name.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise UsageError(f"{where}: nothing is called {name!r:.80}") from None
    return name


def _text_or_null(value: object, where: str) -> str | None:
    return None if value is None else _text(value, where)


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


def _mux_sources(value: object, where: str) -> tuple[MuxSource, ...]:
    if not isinstance(value, list) or len(value) > _SOURCES_MAX:
        raise UsageError(f"{where} is a list of at most {_SOURCES_MAX} objects, not {value!r:.80}")
    return tuple(_parse(MuxSource, part, f"{where}[{number}]") for number, part in enumerate(value))


_CHECKS: Mapping[str, Callable[[object, str], Any]] = {
    "source": _text,
    "where": _text_or_null,
    "shuffle": _seed,
    "repeat": _times,
    "rank": _integer(0, 1 << 20),
    "world_size": _integer(1, 1 << 20),
    "partition": _one_of(*KINDS),
    "tail": _one_of(*TAILS),
    "mux": _mux_sources,
    "weight": _weight,
    "batch": check_batch,
    "output": _one_of(*OUTPUTS),
}
