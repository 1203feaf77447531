"""Samples as rows of a table: what is known of each, the fields of its JSON, and files that are asked for.

`key` and `shard` are always the sample's, `duration` and `text` where it has one. Any other name is a field of the
JSON, else a fact of the sample (`FACTS`), else the bytes of a file.

A column has the type of its values. Integers and floats together are floats. Where values have no common type, the
column is text: strings as they are, and other values as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from touchfs.core.errors import UsageError
from touchfs.core.extras import load_pyarrow
from touchfs.dataset.sample import JSON_NAMES, Sample
from touchfs.form.compressed_content import plain_extension, with_compressed
from touchfs.media.extensions import recordings_among

if TYPE_CHECKING:
    import pyarrow

ROWS = 1024
_BATCH_BYTES = 1 << 24
# WebDataset's file with the number or the name of a class.
LABEL = "cls"
_KEY, _SHARD, _DURATION, _TEXT = "key", "shard", "duration", "text"
# A field of the JSON with such a name counts only for a sample that has no such fact.
_ALWAYS = (_KEY, _SHARD, _DURATION, _TEXT)


def _label(sample: Sample) -> int | str | None:
    if LABEL not in sample:
        return None
    text = sample[LABEL].decode("utf-8", "replace").strip()
    return int(text) if text.isascii() and text.isdigit() else text


FACTS: Mapping[str, Callable[[Sample], Any]] = {
    _KEY: lambda sample: sample.key,
    _SHARD: lambda sample: sample.shard,
    "ordinal": lambda sample: sample.ordinal,
    "segment": lambda sample: sample.number,
    _DURATION: lambda sample: sample.known_duration,
    "rate": lambda sample: sample.rate,
    "channels": lambda sample: sample.channels,
    "coding": lambda sample: sample.coding,
    _TEXT: lambda sample: sample.text,
    LABEL: _label,
}


def facts_among(extensions: Sequence[str]) -> list[str]:
    """The facts that samples with files of these extensions have."""
    has_text = not {*extensions}.isdisjoint(with_compressed("txt"))
    shown = {_DURATION: bool(recordings_among(extensions)), _TEXT: has_text, LABEL: LABEL in extensions}
    return [_KEY, _SHARD, *(name for name, is_shown in shown.items() if is_shown)]


def files_among(extensions: Sequence[str]) -> list[str]:
    """The extensions of these whose files are in no other column: neither the JSON nor the text nor a label."""
    return [each for each in extensions if plain_extension(each) not in (*JSON_NAMES, "txt", LABEL)]


class SampleTable:
    """The rows of samples. `samples` begins an iteration over them, and `extensions` are those of their files.

    `columns` names what is wanted; by default, that is what is known of each, all fields, and `files`. Where a field
    has the name of a file, `.wav` is the file. Raises UsageError for a name that no sample has.
    """

    def __init__(
        self,
        samples: Callable[[], Iterator[Sample]],
        extensions: Sequence[str],
        columns: Sequence[str] | None,
        files: Sequence[str] = (),
    ) -> None:
        self._samples = samples
        self._columns = columns
        self._facts = [*filter(FACTS.__contains__, facts_among(extensions) if columns is None else columns)]
        found = self._find_types()
        if columns is None:
            columns = [*self._facts, *(name for name in found if name not in self._facts)]
            columns += [f".{name}" if name in found else name for name in files]
        self._files = {name: name.removeprefix(".") for name in columns if name not in found}
        if unknown := [name for name, extension in self._files.items() if extension not in extensions]:
            there = ", ".join(dict.fromkeys([*found, *FACTS, *extensions]))
            raise UsageError(f"no sample has a column {unknown[0]!r}: there are {there}")
        pa = load_pyarrow()
        self.schema: pyarrow.Schema = pa.schema(
            [(name, pa.binary() if name in self._files else found[name]) for name in columns]
        )

    def _find_types(self) -> dict[str, pyarrow.DataType]:
        pa = load_pyarrow()
        found = {name: pa.null() for name in self._facts}
        for rows in self._rows():
            for name in dict.fromkeys(name for row in rows for name in row):
                kind = _type_of([row.get(name) for row in rows])
                found[name] = _merged(found.get(name, pa.null()), kind) or pa.string()
        fixed = {**dict.fromkeys((_KEY, _SHARD, _TEXT, "coding"), pa.string()), _DURATION: pa.float64()}
        fixed |= dict.fromkeys(("ordinal", "segment", "rate", "channels"), pa.int64())
        return {
            name: fixed.get(name, kind) if kind == pa.null() else pa.string() if _is_empty(kind) else kind
            for name, kind in found.items()
        }

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """The rows, in batches of at most `ROWS` rows and of about 16 MB of files."""
        samples, schema = self._samples(), self.schema
        done = False
        while not done:
            rows: list[dict[str, Any]] = []
            size = 0
            while len(rows) < ROWS and size < _BATCH_BYTES and not (done := (sample := next(samples, None)) is None):
                files = {name: sample.get(extension) for name, extension in self._files.items()}
                rows.append(self._row(sample) | files)
                size += sum(len(data) for data in files.values() if data is not None)
            if rows:
                columns = [_array([row.get(field.name) for row in rows], field.type) for field in schema]
                yield load_pyarrow().RecordBatch.from_arrays(columns, schema=schema)

    def _rows(self) -> Iterator[list[dict[str, Any]]]:
        samples = map(self._row, self._samples())
        while rows := [*islice(samples, ROWS)]:
            yield rows

    def _row(self, sample: Sample) -> dict[str, Any]:
        value = None if sample.json_name is None else sample.json()
        row = value if isinstance(value, dict) else {}
        if self._columns is not None:
            row = {name: row[name] for name in self._columns if name in row}
        for name in self._facts:
            if name not in row or name in _ALWAYS:
                row[name] = FACTS[name](sample) if name not in row else _either(FACTS[name](sample), row[name])
        return row


def _either(fact: Any, value: Any) -> Any:
    return value if fact is None else fact


def _type_of(values: list[Any]) -> pyarrow.DataType:
    """The type of values; text if they have none in common."""
    pa = load_pyarrow()
    try:
        return pa.array(values).type
    except (pa.ArrowException, OverflowError):
        return pa.string()


def _merged(first: pyarrow.DataType, second: pyarrow.DataType) -> pyarrow.DataType | None:
    """The type of values of two types; None if there is none."""
    pa = load_pyarrow()
    types = pa.types
    if first == second or types.is_null(second):
        return first
    if types.is_null(first):
        return second
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if types.is_list(first) and types.is_list(second):
        inner = _merged(first.value_type, second.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_struct(first) and types.is_struct(second):
        fields = {field.name: field.type for field in first}
        for field in second:
            inner = _merged(fields.get(field.name, pa.null()), field.type)
            if inner is None:
                return None
            fields[field.name] = inner
        return pa.struct([*fields.items()])
    return None


def _is_empty(kind: pyarrow.DataType) -> bool:
    """True if a struct without fields is in a type: Parquet has none."""
    types = load_pyarrow().types
    if types.is_struct(kind):
        return not kind.num_fields or any(_is_empty(field.type) for field in kind)
    return types.is_list(kind) and _is_empty(kind.value_type)


def _array(values: list[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    pa = load_pyarrow()
    if kind == pa.string():
        values = [
            each if each is None or isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in values
        ]
    return pa.array(values, kind)
