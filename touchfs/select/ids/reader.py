"""The ids of a file, batch by batch: texts or integers.

.parquet   a column: the one that is asked for, else that with the name of the field, else the only one
.jsonl     a text or an integer on each line, or objects, of which one field is the id, found alike
.npy       texts, integers, or pairs of u64 as DataComp's lists have them, which are 32 hexadecimal digits
.txt       a text on each line
"""

from __future__ import annotations

import codecs
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.table_builder import encode_key
from touchfs.core.control_characters import quote_name
from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent.file_object import FileObject
from touchfs.core.extras import load_pyarrow
from touchfs.core.packed_bytes import PackedBytes
from touchfs.format.id_hashes import SIZE_MAX
from touchfs.limits import LIMITS
from touchfs.select.predicates import Kinds
from touchfs.source.store import StoredFile
from touchfs.tables.values.column_types import is_long_bytes, is_text, plain_type
from touchfs.tables.values.pyarrow_errors import pyarrow_errors

# Bytes and ids that are in memory at a time
_BATCH_BYTES = 1 << 24
_BATCH_IDS = 1 << 19
_PAIR = np.dtype([("f0", "<u8"), ("f1", "<u8")])
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_NAMES_SHOWN = 20
_WANTED = "an id is a text or an integer"


class Column(NamedTuple):
    """Which column or field has the ids: the one that was asked for, if any, and the field that they are tested on."""

    asked: str | None
    field: str

    def among(self, names: Sequence[str]) -> str:
        """The name of the column. Raises UsageError."""
        shown = ", ".join(map(quote_name, names[:_NAMES_SHOWN])) + " …" * (len(names) > _NAMES_SHOWN)
        if self.asked is not None and self.asked not in names:
            raise UsageError(f"has no column {self.asked!r}: there are {shown}")
        name = self.field if self.asked is None else self.asked
        if names.count(name) > 1:
            raise UsageError(f"has {names.count(name)} columns {name!r}")
        if name in names:
            return name
        if len(names) != 1:
            first = quote_name(names[0]) if names else ""
            example = f": write @FILE:{first} for the ids in {first}" if names else ""
            raise UsageError(f"has no column {self.field!r}, but {shown or 'none at all'}{example}")
        return names[0]


class IdBatch(NamedTuple):
    """Some ids, all texts or all integers of 8 bytes."""

    kind: Kinds
    ids: PackedBytes


def read_ids(file: StoredFile, column: Column) -> Iterator[IdBatch]:
    """Yield the ids of a file in batches. Raises FormatError, UsageError and the errors of its store."""
    reader = READERS[suffix_of(file.path)]
    row, kind = 0, Kinds(0)
    for batch in reader(file, column):
        if kind not in (0, batch.kind):
            raise FormatError("has texts and integers: ids are all of one type")
        kind = batch.kind
        if (lengths := batch.ids.lengths).max(initial=0) > SIZE_MAX:
            raise FormatError(f"the id in row {row + int(lengths.argmax()) + 1} has more than {SIZE_MAX} bytes")
        row += len(lengths)
        yield batch


def suffix_of(path: str) -> str:
    """The suffix of a list, which says how it is read."""
    return os.path.splitext(path)[1]


def integer_id(value: int) -> bytes:
    """An integer of at most 64 bits as an id."""
    return value.to_bytes(8, "little", signed=True)


def _texts(file: StoredFile, column: Column) -> Iterator[IdBatch]:
    left = b""
    for offset in range(0, file.size, _BATCH_BYTES):
        block = left + file.read(offset, min(_BATCH_BYTES, file.size - offset))
        block = block if offset else block.removeprefix(codecs.BOM_UTF8)
        end = len(block) if offset + _BATCH_BYTES >= file.size else block.rfind(b"\n") + 1
        left = block[end:]
        if len(left) > SIZE_MAX + 2:
            raise FormatError(f"a line has more than {SIZE_MAX} bytes", offset=offset)
        data = np.frombuffer(block, np.uint8, end)
        ends = np.flatnonzero(data == ord("\n"))
        if end and block[end - 1] != ord("\n"):
            ends = np.append(ends, end)
        starts = np.append(0, ends + 1)[: len(ends)]
        is_longer = ends > starts
        ends[is_longer] -= data[ends[is_longer] - 1] == ord("\r")
        kept = ends > starts
        yield IdBatch(Kinds.TEXT, PackedBytes(data, starts[kept], (ends - starts)[kept]))


def _json_lines(file: StoredFile, column: Column) -> Iterator[IdBatch]:
    lines = io.BufferedReader(FileObject(file), 1 << 20)
    values: list[Any] = []
    size = number = 0
    while line := lines.readline(LIMITS.json + 1):
        number += 1
        if len(line) > LIMITS.json:
            raise FormatError(f"line {number} has more than {LIMITS.json} bytes")
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"line {number} is not JSON: {error}") from error
        if isinstance(value, dict):
            value = value[column.among([*value])]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) not in (str, int):
            raise FormatError(f"line {number} is {json.dumps(value):.40}: {_WANTED}")
        if values and type(value) is not type(values[0]):
            raise FormatError(f"has texts and integers, as in line {number}: ids are all of one type")
        if type(value) is int and not -(1 << 63) <= value < 1 << 63:
            raise FormatError(f"line {number} is {value!s:.40}: an integer has at most 64 bits")
        values.append(value)
        size += len(line)
        if size > _BATCH_BYTES:
            yield _of_values(values)
            values, size = [], 0
    if values:
        yield _of_values(values)


def _of_values(values: list[Any]) -> IdBatch:
    if type(values[0]) is int:
        return _of_integers(np.array(values, np.int64))
    return IdBatch(Kinds.TEXT, PackedBytes.of([encode_key(value) for value in values]))


def _of_integers(values: NDArray[Any]) -> IdBatch:
    return IdBatch(Kinds.NUMBER, PackedBytes.of_equal(values.astype("<i8").view(np.uint8).reshape(-1, 8)))


def _integers(values: NDArray[Any], first: int) -> NDArray[Any]:
    """Numbers as integers of 64 bits. `first` is the number of rows before them."""
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):  # 2.0**63 is infinite in 16 bits
            wrong = ~(np.isfinite(values) & (values == np.trunc(values)) & (np.abs(values) < 2.0**63))
        reason = _WANTED
    else:
        wrong = values > np.uint64((1 << 63) - 1) if values.dtype.kind == "u" else np.zeros(len(values), bool)
        reason = "an integer has at most 63 bits and a sign"
    if wrong.any():
        row = int(wrong.argmax())
        raise FormatError(f"row {first + row + 1} is {values[row]}: {reason}")
    return values


def _arrays(file: StoredFile, column: Column) -> Iterator[IdBatch]:
    opened = FileObject(file)
    try:
        version = np.lib.format.read_magic(opened)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(opened)
    except (ValueError, SyntaxError) as error:
        reason = str(error).partition("\n")[0] or "its header is damaged"
        raise FormatError(f"not an array of NumPy: {reason}") from error
    if len(shape) != 1 or shape[0] < 0 or not (dtype.kind in "iufSU" or dtype.newbyteorder("<") == _PAIR):
        raise FormatError(f"an array of {dtype} of shape {shape}: ids are texts or integers of shape (n,)")
    if dtype.itemsize > 4 * SIZE_MAX:
        raise FormatError(f"its ids have up to {dtype.itemsize} bytes: more than {SIZE_MAX}")
    start, count, size = opened.tell(), shape[0], max(dtype.itemsize, 1)
    if dtype.itemsize * count > file.size - start:
        raise FormatError(f"cut off: {count} ids of {dtype.itemsize} bytes do not fit into {file.size - start} bytes")
    step = min(max(_BATCH_BYTES // size, 1), _BATCH_IDS)
    for first in range(0, count, step):
        rows = min(step, count - first)
        data = file.read(start + first * dtype.itemsize, rows * dtype.itemsize)
        values = np.frombuffer(data, dtype, rows) if dtype.itemsize else np.zeros(rows, dtype)
        if dtype.kind in "iuf":
            yield _of_integers(_integers(values, first))
        elif dtype.kind == "V":
            pairs = np.stack([values[name] for name in dtype.names or ()], axis=1).astype(">u8")
            digits = pairs.view(np.uint8)
            both = np.stack([digits >> 4, digits & 15], axis=2).reshape(rows, -1)
            yield IdBatch(Kinds.TEXT, PackedBytes.of_equal(_DIGITS[both]))
        else:
            texts = values.tolist() if dtype.kind == "S" else map(encode_key, values.tolist())
            yield IdBatch(Kinds.TEXT, PackedBytes.of([*texts]))


def _parquet(file: StoredFile, column: Column) -> Iterator[IdBatch]:
    pa = load_pyarrow()
    import pyarrow.parquet as pq
    import pyarrow.types as types

    with pyarrow_errors("the list"):
        parquet = pq.ParquetFile(pa.PythonFile(FileObject(file), "r"))
        name = column.among(parquet.schema_arrow.names)
        kind = parquet.schema_arrow.field(name).type
        value = plain_type(kind)
        has_texts = is_text(value) or is_long_bytes(value)
        if not (has_texts or types.is_integer(value) or types.is_floating(value)):
            raise FormatError(f"the column {name!r} has the type {kind}: {_WANTED}")
        first = 0
        for rows in parquet.iter_batches(_BATCH_IDS // 4, columns=[name]):
            array = rows.column(0)
            if array.null_count:
                row = first + array.is_null().index(True).as_py() + 1
                raise FormatError(f"row {row} of the column {name!r} is null: {_WANTED}")
            array = array.cast(pa.large_binary() if has_texts else value)
            if has_texts:
                _, bounds, data = array.buffers()
                offsets = np.frombuffer(bounds, np.int64, len(array) + 1, 8 * array.offset)
                found = np.frombuffer(data or b"", np.uint8)
                yield IdBatch(Kinds.TEXT, PackedBytes(found, offsets[:-1], np.diff(offsets)))
            else:
                yield _of_integers(_integers(array.to_numpy(), first))
            first += len(array)


READERS: Mapping[str, Callable[[StoredFile, Column], Iterator[IdBatch]]] = {
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".npy": _arrays,
    ".txt": _texts,
}
