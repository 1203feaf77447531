"""Examples become record batches: encoded by their features, in threads if wanted, and gathered by columns.

At most one batch is in memory, and a few examples for each thread. The codecs of Pillow and hashes let other threads
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from touchfs.core.errors import ArgumentTypeError, ArgumentValueError, NotFoundError, TouchfsError
from touchfs.core.extras import load_pyarrow
from touchfs.core.progress import advance
from touchfs.features import Features, FeatureType, Image, Sequence, Value
from touchfs.features.base import unwrap_scalar
from touchfs.posix.threads import ThreadPool

if TYPE_CHECKING:
    import pyarrow

# Examples that are encoded at a time, at most: submitting a task to a thread costs 20 µs.
_TASK = 64
# Tasks that are submitted ahead, for each thread.
_AHEAD = 2
# Python's types that features store as they are. A subclass may encode them.
_SCALARS: frozenset[type[Any]] = frozenset({int, float, bool, str, bytes, type(None)})
_UNCHANGED: Mapping[type[FeatureType], frozenset[type[Any]]] = {
    Value: _SCALARS,
    Image: frozenset({bytes, type(None)}),
}
_LISTS: frozenset[type[Any]] = frozenset({list, type(None)})

Columns: TypeAlias = dict[str, list[Any]]
# Some examples, and the number of the first.
Task: TypeAlias = tuple[int, list[Mapping[str, Any]]]
Encode: TypeAlias = Callable[[Task], Columns]


def encode_example(
    example: Mapping[str, Any], features: Mapping[str, FeatureType], *, cache_dir: Path | None = None
) -> dict[str, Any]:
    """Return the values of an example as pyarrow takes them, by their features.

    Scalars of NumPy in columns without a feature become Python's. Files beside the table are put into `cache_dir`.
    """
    features = Features.of(features)
    encoded = {}
    for name, value in example.items():
        feature = features.get(name)
        encoded[name] = unwrap_scalar(value) if feature is None else feature.encode(value, cache_dir=cache_dir)
    return encoded


def record_batches(
    generator: Iterable[tuple[Any, Mapping[str, Any]]],
    features: Features,
    *,
    batch_size: int,
    num_encode_workers: int,
    cache_dir: Path,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield batches of `batch_size` examples, the last one smaller, and report each to `touchfs.core.progress`.

    The generator yields pairs of a key, which is not used, and an example. A missing column is null, and columns
    without a feature are left out. Raises ArgumentValueError and ArgumentTypeError, which name the column and the
    numbers of the examples, counted from 0, and what the generator raises.
    """
    if batch_size < 1:
        raise ArgumentValueError(f"batch_size must be at least 1, got {batch_size}")
    if not features:
        raise ArgumentValueError("a cache needs at least one column: the features are empty")
    schema = features.to_arrow_schema()
    encode = partial(_encode_columns, features=features, cache_dir=cache_dir)
    examples = (example for _, example in checked_pairs(generator))
    # Small batches are divided among all threads.
    size = min(_TASK, -(-batch_size // max(num_encode_workers, 1)))
    row = 0
    while columns := _gather(encode, islice(examples, batch_size), row, size, features, num_encode_workers):
        batch = _batch(columns, schema, row)
        row += batch.num_rows
        yield batch
        advance(batch.num_rows)


def checked_pairs(generator: Iterable[tuple[Any, Mapping[str, Any]]]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the pairs of a generator. Raises ArgumentTypeError if it yields dicts alone, or anything else."""
    for number, pair in enumerate(generator):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not hasattr(pair[1], "get"):
            raise ArgumentTypeError(f"example {number} is not a pair of a key and a dict: {pair!r:.80}")
        yield pair


def _batch(columns: Columns, schema: pyarrow.Schema, row: int) -> pyarrow.RecordBatch:
    pa = load_pyarrow()
    arrays = []
    for field in schema:
        # A column's values go as soon as they are in an array, so that the batch is in memory once only.
        values = columns.pop(field.name)
        try:
            arrays.append(_array(values, field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError) as error:
            kind = ArgumentTypeError if isinstance(error, TypeError) else ArgumentValueError
            where = f"column {field.name!r} of the examples {row} to {row + len(values) - 1}"
            raise kind(f"{where} does not fit {field.type}: {error}") from error
    return pa.record_batch(arrays, schema=schema)


def _array(values: list[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    """Return values as an array of a type. Raises ArrowInvalid for floats that are not whole in a column of integers.

    Only a cast refuses these: pyarrow's conversion drops their fractions. To look for floats takes a third of its time.
    """
    pa = load_pyarrow()
    if pa.types.is_integer(_element(kind)) and _have_floats(values):
        return pa.array(values).cast(kind)
    return pa.array(values, kind)


def _have_floats(values: list[Any]) -> bool:
    pa = load_pyarrow()
    try:
        return bool(pa.types.is_floating(_element(pa.infer_type(values))))
    except pa.ArrowInvalid:  # integers of several types of NumPy
        return False


def _element(kind: pyarrow.DataType) -> pyarrow.DataType:
    while load_pyarrow().types.is_list(kind):
        kind = kind.value_type
    return kind


def _gather(
    encode: Encode, examples: Iterator[Mapping[str, Any]], row: int, size: int, features: Features, workers: int
) -> Columns | None:
    """Return the columns of all examples, from number `row` on, encoded `size` at a time; None if there is none."""
    tasks = zip(count(row, size), iter(lambda: list(islice(examples, size)), []))
    columns: Columns = {name: [] for name in features}
    for part in map(encode, tasks) if workers <= 0 else _in_threads(encode, tasks, workers):
        for name, values in part.items():
            columns[name] += values
    return columns if next(iter(columns.values())) else None


def _encode_columns(task: Task, features: Features, cache_dir: Path) -> Columns:
    """Return what `encode_example` makes of the examples, by column. Most values are not touched at all."""
    first, examples = task
    columns = {}
    for name, feature in features.items():
        values = [example.get(name) for example in examples]
        if not _unchanged(feature).issuperset(map(type, values)):
            encoded: list[Any] = []
            try:
                for value, example in zip(values, examples, strict=True):
                    encoded.append(feature.encode(value, cache_dir=cache_dir) if name in example else None)
            except (ArgumentTypeError, ArgumentValueError, NotFoundError) as error:
                raise of_example(error, name, first + len(encoded)) from error
            values = encoded
        columns[name] = values
    return columns


def of_example(error: TouchfsError, column: str, number: int) -> TouchfsError:
    """Return an error of a value, of the same class, that names the column and the number of its example."""
    return type(error)(f"column {column!r} of example {number}: {error.message}", path=error.path)


def _unchanged(feature: FeatureType) -> frozenset[type[Any]]:
    if type(feature) is Sequence and type(feature.feature) is Value:
        return _LISTS
    return _UNCHANGED.get(type(feature), frozenset())


def _in_threads(encode: Encode, tasks: Iterator[Task], workers: int) -> Iterator[Columns]:
    """Yield what the function makes of the tasks, in order."""
    with closing(ThreadPool(workers, "touchfs-encode")) as pool:
        for _, columns in pool.in_order(encode, tasks, _AHEAD * workers):
            yield columns.result()
