"""Schemas of Arrow files, of all types: the fields, and where the nodes and buffers of each are in a record batch.

A record batch has a node and some buffers for each field, depth first, the children of a field after it. A field of
dictionary codes has those of its codes; its values and their children are in other messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.format.arrow.flatbuffers import I16, I32, I64, U8, FlatTable
from touchfs.format.arrow.metadata import (
    FIELD_CHILDREN,
    FIELD_DICTIONARY,
    FIELD_KIND,
    FIELD_METADATA,
    FIELD_NAME,
    FIELD_NULLABLE,
    FIELD_TYPE,
    INT_BITS,
    INT_SIGNED,
    PAIR_KEY,
    PAIR_VALUE,
    SCHEMA_ENDIANNESS,
    SCHEMA_FIELDS,
    SCHEMA_METADATA,
    VERSION4,
    Kind,
)

# pyarrow reads no deeper schema either.
NESTING_MAX = 64
# Fields with their children. A schema of so many takes a second to parse.
FIELDS_MAX = 100_000

_DICTIONARY_ID, _DICTIONARY_INDEX = range(2)
_DENSE = 1
VIEWS = (Kind.BINARY_VIEW, Kind.UTF8_VIEW)
# The width of their offsets in bytes
OFFSET_WIDTHS = {Kind.BINARY: 4, Kind.UTF8: 4, Kind.LARGE_BINARY: 8, Kind.LARGE_UTF8: 8}
LIST_WIDTHS = {Kind.LIST: 4, Kind.LARGE_LIST: 8}


@dataclass(frozen=True, slots=True)
class IpcType:
    """A type. `bits` is the width of a value in the buffer of values, 0 if there is no such buffer.

    `dtype` is that of integers and floats. `size` is the number of values in each list of `fixed_size_list`. `is_dense`
    is a property of unions.
    """

    kind: Kind
    bits: int = 0
    dtype: np.dtype[np.generic] | None = None
    size: int = 0
    is_dense: bool = False


@dataclass(frozen=True, slots=True)
class IpcField:
    """A field of a schema, or a child of one.

    `dictionary` is the number of the dictionary whose codes are stored, of type `codes`; None if the values themselves
    are. `node` and `buffer` are the first node and buffer of the field in a record batch, and `view` the number of
    fields of views before it: each of those has more buffers, as many as the batch says.
    """

    name: str
    type: IpcType
    nullable: bool
    children: tuple[IpcField, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict, hash=False)
    dictionary: int | None = None
    codes: IpcType | None = None
    node: int = 0
    buffer: int = 0
    view: int = 0


@dataclass(frozen=True, slots=True)
class IpcSchema:
    """A schema. A record batch has `nodes` nodes and `buffers` buffers, and more of these for each of `views` fields.

    `dictionaries` are the numbers of all dictionaries that fields refer to.
    """

    fields: tuple[IpcField, ...]
    metadata: dict[str, str] = field(hash=False)
    nodes: int
    buffers: int
    views: int
    dictionaries: frozenset[int]

    def path(self, *names: str) -> tuple[int, ...]:
        """Return the path of a column, or of a child of one, by its names: the number of the column, then of the child.

        Raises FormatError if there is none, or more than one.
        """
        fields, path = self.fields, []
        for depth, name in enumerate(names, 1):
            found = [number for number, each in enumerate(fields) if each.name == name]
            if len(found) != 1:
                many = "no column" if not found else f"{len(found)} columns"
                raise FormatError(f"the Arrow schema has {many} {'.'.join(names[:depth])!r}")
            path += found
            fields = fields[found[0]].children
        return tuple(path)

    def field(self, path: Sequence[int]) -> IpcField:
        """Return the field at a path of `path`. Raises IndexError if there is none."""
        return self.chain(path)[-1]

    def chain(self, path: Sequence[int]) -> list[IpcField]:
        """Return the fields on a path, from the column on. Raises IndexError if there is none."""
        fields, chain = self.fields, []
        for number in path:
            chain.append(fields[number])
            fields = fields[number].children
        return chain


def parse_schema(table: FlatTable, version: int, offset: int) -> IpcSchema:
    """Parse the schema in a table of metadata of a version. `offset` is its place for errors. Raises FormatError."""
    if table.scalar(SCHEMA_ENDIANNESS, I16):
        raise FormatError("the Arrow file is big-endian", offset=offset)
    parser = _FieldParser(version, offset)
    fields = parser.fields(table, SCHEMA_FIELDS, 1, in_batch=True)
    metadata = _pairs(table, SCHEMA_METADATA)
    return IpcSchema(fields, metadata, parser.nodes, parser.buffers, parser.views, frozenset(parser.dictionaries))


def _pairs(table: FlatTable, slot: int) -> dict[str, str]:
    return {pair.text(PAIR_KEY): pair.text(PAIR_VALUE) for pair in table.tables(slot)}


class _FieldParser:
    """Parses fields and counts their nodes and buffers."""

    def __init__(self, version: int, offset: int) -> None:
        self.nodes = self.buffers = self.views = 0
        self.dictionaries: set[int] = set()
        self._version = version
        self._offset = offset
        self._count = 0

    def fields(self, table: FlatTable, slot: int, depth: int, in_batch: bool) -> tuple[IpcField, ...]:
        """Parse the fields in a slot. Those that are values of a dictionary are not in batches."""
        self._count += table.count(slot)
        if self._count > FIELDS_MAX:
            raise FormatError(f"an Arrow schema of over {FIELDS_MAX:,} fields", offset=self._offset)
        if depth > NESTING_MAX and table.count(slot):
            raise FormatError(f"an Arrow schema is nested over {NESTING_MAX} deep", offset=self._offset)
        return tuple(self._field(each, depth, in_batch) for each in table.tables(slot))

    def _field(self, table: FlatTable, depth: int, in_batch: bool) -> IpcField:
        name = table.text(FIELD_NAME)
        kind = self._type(table, name)
        dictionary, codes = self._dictionary(table, name)
        node, buffer, view = self.nodes, self.buffers, self.views
        if in_batch:
            self._add(codes or kind)
        children = self.fields(table, FIELD_CHILDREN, depth + 1, in_batch and codes is None)
        if kind.kind == Kind.FIXED_SIZE_LIST and len(children) != 1:
            raise FormatError(f"lists of {len(children)} types in column {name!r}", offset=self._offset)
        nullable, metadata = bool(table.scalar(FIELD_NULLABLE, U8)), _pairs(table, FIELD_METADATA)
        return IpcField(name, kind, nullable, children, metadata, dictionary, codes, node, buffer, view)

    def _dictionary(self, table: FlatTable, name: str) -> tuple[int | None, IpcType | None]:
        if FIELD_DICTIONARY not in table:
            return None, None
        encoding = table.table(FIELD_DICTIONARY)
        number = encoding.scalar(_DICTIONARY_ID, I64)
        self.dictionaries.add(number)
        if _DICTIONARY_INDEX not in encoding:
            return number, _number("i", 32)
        return number, self._integer(encoding.table(_DICTIONARY_INDEX), name)

    def _type(self, field: FlatTable, name: str) -> IpcType:
        try:
            kind = Kind(field.scalar(FIELD_KIND, U8))
        except ValueError as error:
            number = field.scalar(FIELD_KIND, U8)
            raise FormatError(f"column {name!r} is of an unknown type, number {number}", offset=self._offset) from error
        parameters = field.table(FIELD_TYPE)
        if kind == Kind.INT:
            return self._integer(parameters, name)
        if kind == Kind.FLOAT:
            return _number("f", 16 << self._among(parameters.scalar(0, I16), 3, name))
        if kind in (Kind.FIXED_SIZE_BINARY, Kind.FIXED_SIZE_LIST):
            size = parameters.scalar(0, I32)
            if size < 0:
                raise FormatError(f"column {name!r} has values of {size} bytes or elements", offset=self._offset)
            return IpcType(kind, 8 * size) if kind == Kind.FIXED_SIZE_BINARY else IpcType(kind, size=size)
        if kind == Kind.DECIMAL:
            bits = parameters.scalar(2, I32, 128)
            if bits not in (32, 64, 128, 256):
                raise FormatError(f"column {name!r} is of decimals of {bits} bits", offset=self._offset)
            return IpcType(kind, bits)
        if kind == Kind.DATE:
            return IpcType(kind, 32 << self._among(parameters.scalar(0, I16, 1), 2, name))
        if kind == Kind.TIME:
            # seconds and milliseconds, or microseconds and nanoseconds
            return IpcType(kind, 32 if self._among(parameters.scalar(0, I16, 1), 4, name) < 2 else 64)
        if kind == Kind.INTERVAL:
            return IpcType(kind, 32 << self._among(parameters.scalar(0, I16), 3, name))
        if kind in (Kind.TIMESTAMP, Kind.DURATION):
            return IpcType(kind, 64)
        if kind == Kind.UNION:
            return IpcType(kind, is_dense=self._among(parameters.scalar(0, I16), 2, name) == _DENSE)
        return IpcType(kind, 1 if kind == Kind.BOOL else 0)

    def _integer(self, parameters: FlatTable, name: str) -> IpcType:
        bits = parameters.scalar(INT_BITS, I32)
        if bits not in (8, 16, 32, 64):
            raise FormatError(f"column {name!r} is of integers of {bits} bits", offset=self._offset)
        return _number("i" if parameters.scalar(INT_SIGNED, U8) else "u", bits)

    def _among(self, number: int, count: int, name: str) -> int:
        if not 0 <= number < count:
            raise FormatError(f"column {name!r} is of an unknown variant of its type", offset=self._offset)
        return number

    def _add(self, stored: IpcType) -> None:
        """Count the node and the buffers of a field."""
        self.nodes += 1
        self.views += stored.kind in VIEWS
        if stored.kind in (Kind.UNION, Kind.RUN_END_ENCODED):
            self.buffers += (stored.kind == Kind.UNION) + stored.is_dense + (self._version == VERSION4)
        elif stored.kind in OFFSET_WIDTHS or stored.kind in (Kind.LIST_VIEW, Kind.LARGE_LIST_VIEW):
            self.buffers += 3
        elif stored.kind in (Kind.STRUCT, Kind.FIXED_SIZE_LIST):
            self.buffers += 1
        elif stored.kind != Kind.NULL:
            self.buffers += 2


def _number(sign: str, bits: int) -> IpcType:
    kind = Kind.FLOAT if sign == "f" else Kind.INT
    return IpcType(kind, bits, np.dtype(f"<{sign}{bits // 8}"))
