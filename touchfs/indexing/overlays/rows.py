"""The rows of an overlay: a key, the row as JSON, and a text for each column that has texts, numbers or booleans.

.parquet   one column has the keys
.jsonl     one field of the object on each line has the key

Values are those of `touchfs.tables.values.json_values`. Lists and objects are only in the JSON. A null is no value: the
row has neither a text nor a field. Columns of bytes are left out.
"""

from __future__ import annotations

import codecs
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from touchfs.core.control_characters import quote_name
from touchfs.core.errors import FormatError, MissingColumnError, UsageError
from touchfs.core.extent.file_object import FileObject
from touchfs.core.extras import load_pyarrow
from touchfs.core.names import distinct
from touchfs.core.packed_bytes import PackedBytes
from touchfs.format.id_hashes import SIZE_MAX
from touchfs.limits import LIMITS
from touchfs.source.store import StoredFile
from touchfs.tables.values.column_types import is_bytes, is_text, plain_type
from touchfs.tables.values.pyarrow_errors import pyarrow_errors

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

# Each column may become a file of each sample.
COLUMNS_MAX = 256
# The columns that have keys if none is named
KEY_COLUMNS = ("key", "__key__", "id")
# Bytes and rows that are in memory at a time
_BATCH_BYTES = 1 << 24
_BATCH_ROWS = 1 << 14
_encode = json.JSONEncoder(ensure_ascii=False).encode
# NaN and the infinities are texts, as `json_values` has them.
_decode = json.JSONDecoder(parse_constant=str).decode


class OverlayColumns(NamedTuple):
    """The columns of an overlay: that with the keys, those with texts, all others with values, and those left out."""

    key: str
    texts: Sequence[str]
    others: Sequence[str]
    left_out: Sequence[str]


class OverlayBatch(NamedTuple):
    """Some rows: their keys, and columns of bytes: of keys, of JSON, and of the text of each column that has texts."""

    keys: PackedBytes
    columns: list[pyarrow.Array]


# Keys, and columns by name: arrays of Arrow, or lists of values as JSON has them
_Values = tuple[Any, Mapping[str, Any]]


class OverlayRows:
    """The rows of a file. `asked` is the column with the keys, None if one of `KEY_COLUMNS` has them.

    Raises UsageError for columns that are no overlay's, FormatError and the errors of its store.
    """

    def __init__(self, file: StoredFile, asked: str | None) -> None:
        self._reader = _READERS[suffix_of(file.path)](file, asked)
        self.columns = columns = self._reader.columns
        if len(columns.texts) + len(columns.others) > COLUMNS_MAX:
            raise UsageError(
                f"has {len(columns.texts) + len(columns.others):,} columns beside its keys: "
                f"write those that you need, at most {COLUMNS_MAX}, into another file"
            )

    def __iter__(self) -> Iterator[OverlayBatch]:
        import pyarrow.compute as compute

        first = 0
        for keys, values in self._reader:
            encoded = _keys(keys, first)
            named = {name: _column(each) for name, each in values.items()}
            rows = _objects({name: column.json for name, column in named.items()}, len(encoded))
            if (longest := compute.max(compute.binary_length(rows)).as_py() or 0) > LIMITS.json:
                row = first + compute.index(compute.binary_length(rows), longest).as_py() + 1
                raise FormatError(f"row {row} has {longest:,} bytes as JSON: more than {LIMITS.json:,}")
            yield OverlayBatch(packed(encoded), [encoded, rows, *(named[name].text for name in self.columns.texts)])
            first += len(encoded)


def suffix_of(path: str) -> str:
    """The suffix of an overlay, which says how it is read. Raises UsageError if it is not one."""
    suffix = os.path.splitext(path)[1]
    if suffix not in _READERS:
        raise UsageError(f"is not an overlay: name a {' or '.join(_READERS)}")
    return suffix


class _ColumnBytes(NamedTuple):
    """The values of a column as JSON and as contents of files, as arrays of bytes: null where there is none."""

    json: pyarrow.Array
    text: pyarrow.Array


def packed(values: pyarrow.Array) -> PackedBytes:
    """An array of bytes without nulls."""
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, np.int64, len(values) + 1, 8 * values.offset)
    return PackedBytes(np.frombuffer(data or b"", np.uint8), starts[:-1], np.diff(starts))


def _keys(keys: pyarrow.Array | list[Any], first: int) -> pyarrow.Array:
    """The keys as bytes. `first` is the number of rows before them."""
    arrow = load_pyarrow()
    if isinstance(keys, list):
        wrong = next((i for i, key in enumerate(keys) if type(key) is not str), None)
        encoded = arrow.array([encode_key(key) for key in keys[:wrong]], arrow.large_binary())
    else:
        wrong = keys.is_null().index(True).as_py() if keys.null_count else None
        encoded = keys.cast(arrow.large_binary())
    if wrong is not None:
        value = keys[wrong] if isinstance(keys, list) else None
        shown = f"{json.dumps(value):.40}"
        raise FormatError(f"the key in row {first + wrong + 1} is {shown}: keys of samples are texts, so write a text")
    sizes = packed(encoded).lengths
    if sizes.max(initial=0) > SIZE_MAX:
        raise FormatError(f"the key in row {first + int(sizes.argmax()) + 1} has more than {SIZE_MAX:,} bytes")
    return encoded


def _column(values: pyarrow.Array | list[Any]) -> _ColumnBytes:
    """Texts, numbers and booleans are converted as arrays: others take some times as long."""
    import pyarrow.compute as compute

    from touchfs.tables.values.json_values import json_values

    arrow = load_pyarrow()
    types, binary = arrow.types, arrow.large_binary()
    if isinstance(values, list) and (kind := _kind_of(values)) is not None:
        with suppress(OverflowError, UnicodeEncodeError):  # over 64 bits, and half of a surrogate pair
            values = arrow.array(values, kind)
    if not isinstance(values, list):
        if types.is_dictionary(values.type) and is_text(values.type):
            values = values.cast(values.type.value_type)
        kind = values.type
        if types.is_integer(kind) or types.is_boolean(kind):
            text = values.cast(arrow.large_string()).cast(binary)
            return _ColumnBytes(text, text)
        if types.is_floating(kind) and compute.all(compute.is_finite(values)).as_py() in (True, None):
            found = [None if each is None else repr(each) for each in values.to_pylist()]
            text = arrow.array(found, arrow.large_string()).cast(binary)
            return _ColumnBytes(text, text)
        if types.is_string(kind) or types.is_large_string(kind):
            values = values.cast(arrow.large_string())
            if not compute.any(compute.match_substring_regex(values, r"[\x00-\x1f]")).as_py():
                quoted = compute.replace_substring(values, "\\", "\\\\")
                quoted = compute.replace_substring(quoted, '"', '\\"').cast(binary)
                return _ColumnBytes(_join(b'"', quoted, b'"'), values.cast(binary))
        values = json_values(values)
    return _ColumnBytes(arrow.array(map(_json, values), binary), arrow.array(map(_text, values), binary))


def _kind_of(values: list[Any]) -> pyarrow.DataType | None:
    """The type of values that are all texts, integers, floats or booleans, but for None."""
    arrow = load_pyarrow()
    kinds = {*map(type, values)} - {type(None)}
    of = {str: arrow.large_string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    return of.get(kinds.pop()) if len(kinds) == 1 else None


def _objects(columns: Mapping[str, pyarrow.Array], count: int) -> pyarrow.Array:
    """Rows as JSON, of columns of values as JSON. Nulls are left out."""
    arrow = load_pyarrow()
    binary, is_first = arrow.large_binary(), np.ones(count, bool)
    parts = [arrow.array([b""] * count, binary)]
    for name, column in columns.items():
        between = arrow.array([b", ", b""], binary).take(arrow.array(is_first.astype(np.int8)))
        parts.append(_join(between, _json(name), b": ", column).fill_null(b""))
        is_first &= np.asarray(column.is_null())
    return _join(b"{", *parts, b"}")


def _join(*parts: pyarrow.Array | bytes | None) -> pyarrow.Array:
    """The parts of each row one after the other; null where one is."""
    import pyarrow.compute as compute

    arrow = load_pyarrow()
    values = (arrow.scalar(each, arrow.large_binary()) if isinstance(each, bytes) else each for each in (*parts, b""))
    return compute.binary_join_element_wise(*values)


def encode_key(key: str) -> bytes:
    """A key as bytes: those of a file's name where it has them."""
    try:
        return key.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return key.encode(errors="surrogatepass")


def _json(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(value).encode()


def _text(value: Any) -> bytes | None:
    """The content of the file of a value; None for a list, an object and null."""
    if not isinstance(value, str):
        return None if isinstance(value, list | dict) else _json(value)
    try:
        return value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _key_among(names: Sequence[str], asked: str | None) -> str:
    for name in KEY_COLUMNS if asked is None else [asked]:
        if name in names:
            return name
    wanted = "key, __key__ or id" if asked is None else repr(asked)
    have = f"but {', '.join(map(quote_name, names[:20]))}{' …' if len(names) > 20 else ''}" if names else "no columns"
    example = f": write FILE:{quote_name(names[0])} for the keys in {quote_name(names[0])}" if names else ""
    raise MissingColumnError(f"has no column {wanted}, {have}{example}" if names else "has no columns")


class _Parquet:
    def __init__(self, file: StoredFile, asked: str | None) -> None:
        pa = load_pyarrow()
        import pyarrow.parquet as pq

        with pyarrow_errors("the overlay"):
            self._file: pyarrow.parquet.ParquetFile = pq.ParquetFile(pa.PythonFile(FileObject(file), "r"))
            schema = self._file.schema_arrow
        self._names = distinct(schema.names)
        self._key = key = _key_among(self._names, asked)
        kinds = dict(zip(self._names, schema.types, strict=True))
        if not is_text(kinds[key]):
            raise FormatError(
                f"the column {key!r} has the type {kinds[key]}: keys of samples are texts, so write texts"
            )
        others = {name: kind for name, kind in kinds.items() if name != key}
        left_out = [name for name, kind in others.items() if is_bytes(kind)]
        nested = [name for name, kind in others.items() if pa.types.is_nested(plain_type(kind))]
        texts = [name for name in others if name not in {*left_out, *nested}]
        self.columns = OverlayColumns(key, texts, nested, left_out)

    def __iter__(self) -> Iterator[_Values]:
        from touchfs.tables.values.sound import sound

        pa = load_pyarrow()
        wanted = [self._key, *self.columns.texts, *self.columns.others]
        with pyarrow_errors("the overlay"):
            groups = self._file.metadata
            sizes = (groups.row_group(i).total_byte_size for i in range(groups.num_row_groups))
            each = max(sum(sizes) // max(groups.num_rows, 1), 1)
            rows = min(max(_BATCH_BYTES // each, 1), _BATCH_ROWS)
            for batch in self._file.iter_batches(rows, columns=None if self._has_all(wanted) else wanted):
                names = self._names if self._has_all(wanted) else batch.schema.names
                arrays = dict(zip(names, batch.columns, strict=True))
                key = arrays[self._key]
                key = key.cast(key.type.value_type) if pa.types.is_dictionary(key.type) else key
                yield key, {name: sound(arrays[name]) for name in wanted[1:]}

    def _has_all(self, wanted: Sequence[str]) -> bool:
        """True if columns are not chosen by name: all are needed, or two have one name."""
        return len(wanted) == len(self._names) or self._names != self._file.schema_arrow.names


class _JsonLines:
    def __init__(self, file: StoredFile, asked: str | None) -> None:
        self._file = file
        names: dict[str, bool] = {}  # whether a value of the column is a text
        known: set[str] = set()  # those of which one is
        count = 0
        for row, _ in self._lines():
            count += 1
            for name, value in row.items() if row.keys() - known else ():
                if name not in known and value is not None:
                    names[name] = type(value) not in (list, dict)
                    known |= {name} if names[name] else set()
            if len(names) > COLUMNS_MAX + 1:
                raise UsageError(f"has over {COLUMNS_MAX} fields beside its keys: write those that you need elsewhere")
        self._key = key = _key_among([*names], asked) if count else (asked or KEY_COLUMNS[0])
        texts = [name for name, has_text in names.items() if has_text and name != key]
        self.columns = OverlayColumns(key, texts, [name for name in names if name not in {*texts, key}], [])

    def __iter__(self) -> Iterator[_Values]:
        names = [*self.columns.texts, *self.columns.others]
        rows: list[dict[str, Any]] = []
        size = 0
        for row, line in self._lines():
            rows.append(row)
            size += line
            if size > _BATCH_BYTES or len(rows) == _BATCH_ROWS:
                yield self._values(rows, names)
                rows, size = [], 0
        if rows:
            yield self._values(rows, names)

    def _values(self, rows: Sequence[dict[str, Any]], names: Sequence[str]) -> _Values:
        return [row.get(self._key) for row in rows], {name: [row.get(name) for row in rows] for name in names}

    def _lines(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the object on each line, and the number of its bytes."""
        lines = io.BufferedReader(FileObject(self._file), 1 << 20)
        number = 0
        while line := lines.readline(LIMITS.json + 1):
            number += 1
            if len(line) > LIMITS.json:
                raise FormatError(f"line {number} has more than {LIMITS.json:,} bytes")
            if not line.strip():
                continue
            try:
                row = _decode(
                    (line if number > 1 else line.removeprefix(codecs.BOM_UTF8)).decode("utf-8", "surrogatepass")
                )
            except (ValueError, RecursionError) as error:
                raise FormatError(f"line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise FormatError(f'line {number} is not an object, as {{"key": "a", "caption": "…"}}')
            yield row, len(line)


_READERS: Mapping[str, Callable[[StoredFile, str | None], _Parquet | _JsonLines]] = {
    ".parquet": _Parquet,
    ".jsonl": _JsonLines,
}
