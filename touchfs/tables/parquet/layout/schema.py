"""Schemas of Parquet files: a tree of columns, whose leaves have pages.

A value of a leaf has two levels. Its *definition level* says how many of the optional and repeated fields on the path
to it are there: it is a value if all are (`max_definition`). Its *repetition level* says which list it goes on; 0
begins a row.

Source: github.com/apache/parquet-format, `parquet.thrift` and README.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from touchfs.core.errors import FormatError
from touchfs.tables.parquet.layout.thrift import STRUCT, CompactReader

NESTING_MAX = 64
# Elements of a schema; one of so many takes a second to parse.
ELEMENTS_MAX = 100_000


class PhysicalType(IntEnum):
    """The physical type of a leaf: the form in which its values are stored."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


INT96_SIZE = 12
_WIDTHS = {
    PhysicalType.INT32: 4,
    PhysicalType.INT64: 8,
    PhysicalType.INT96: INT96_SIZE,
    PhysicalType.FLOAT: 4,
    PhysicalType.DOUBLE: 8,
}
_REQUIRED, _OPTIONAL, _REPEATED = range(3)
# Converted types, and fields of the union LogicalType: groups that stand for a list or map
_CONVERTED_NESTED = (1, 2, 3)
_LOGICAL_NESTED = (2, 3)


@dataclass(frozen=True, slots=True)
class ParquetLeaf:
    """A leaf. `number` is that of its column chunk in each row group; `column` is that of the column that it is in.

    `width` is the bytes of a value, 0 for booleans and `BYTE_ARRAY`.
    """

    number: int
    column: int
    names: tuple[str, ...]
    type: PhysicalType
    width: int
    max_definition: int
    max_repetition: int


@dataclass(frozen=True, slots=True)
class ParquetNode:
    """A field of the schema. `leaves` are the numbers of the leaves in it. `is_struct` is False for lists and maps."""

    name: str
    children: tuple[ParquetNode, ...]
    leaves: range
    is_struct: bool
    is_repeated: bool

    @property
    def element(self) -> ParquetNode | None:
        """The elements of a list in the form of today's writers: a group of one repeated group of one field.

        None for other fields. A repeated group called `array`, or as the list with `_tuple`, is an element itself.
        """
        if self.is_struct or self.is_repeated or len(self.children) != 1:
            return None
        (group,) = self.children
        is_old = group.name in ("array", f"{self.name}_tuple")
        return group.children[0] if group.is_repeated and len(group.children) == 1 and not is_old else None


@dataclass(frozen=True, slots=True)
class ParquetSchema:
    """A schema: its columns, and all leaves.

    `elements` has the stored elements of each column, which are one after the other: their number, and their bytes.
    """

    columns: tuple[ParquetNode, ...]
    leaves: tuple[ParquetLeaf, ...]
    elements: tuple[tuple[int, bytes], ...]

    def leaves_at(self, path: Sequence[int]) -> range:
        """The numbers of the leaves of a column, or of a child of structs in it. Raises FormatError for no column."""
        fields, leaves = self.columns, range(0)
        for depth, number in enumerate(path):
            if not 0 <= number < len(fields):
                raise FormatError(f"the Parquet file has no column {'.'.join(map(str, path))}")
            node = fields[number]
            leaves = node.leaves
            if depth + 1 == len(path):
                break
            element = node.element
            if element is None and (not node.is_struct or node.is_repeated):
                raise FormatError(f"column {node.name!r} of the Parquet file has no children that are columns")
            fields = node.children if element is None else (element,)
        return leaves

    def leaf_at(self, path: Sequence[int]) -> ParquetLeaf:
        """The only leaf at a path. Raises FormatError if there is none, or more than one."""
        leaves = self.leaves_at(path)
        if len(leaves) != 1:
            raise FormatError(
                f"column {'.'.join(map(str, path))} of the Parquet file has {len(leaves)} leaves, not one"
            )
        return self.leaves[leaves[0]]


@dataclass(slots=True)
class _Element:
    """An element of the list of all fields, a field before its children."""

    name: str = ""
    type: int | None = None
    width: int = 0
    repetition: int = _REQUIRED
    children: int = 0
    is_nested: bool = False


def parse_schema(reader: CompactReader, kind: int) -> ParquetSchema:
    """Parse the list of the elements of a schema. Raises FormatError."""
    count = reader.elements(kind, STRUCT)
    if not 0 < count <= ELEMENTS_MAX:
        raise reader.error(f"a schema of {count:,} elements, the most is {ELEMENTS_MAX:,}")
    elements, ends = [], []
    for _ in range(count):
        elements.append(_parse_element(reader))
        ends.append(reader.position)
    return _SchemaTree(reader, elements, ends).schema()


def _parse_element(reader: CompactReader) -> _Element:
    element = _Element()
    for number, kind in reader.fields():
        match number:
            case 1:  # type
                element.type = reader.number(kind)
            case 2:  # type_length
                element.width = reader.number(kind)
            case 3:  # repetition_type
                element.repetition = reader.number(kind)
            case 4:  # name
                element.name = reader.text(kind)
            case 5:  # num_children
                element.children = reader.number(kind)
            case 6:  # converted_type
                element.is_nested |= reader.number(kind) in _CONVERTED_NESTED
            case 10:  # logicalType
                for logical, inner in reader.struct(kind):
                    element.is_nested |= logical in _LOGICAL_NESTED
                    reader.skip(inner)
            case _:
                reader.skip(kind)
    return element


class _SchemaTree:
    """Makes the tree of a list of elements."""

    def __init__(self, reader: CompactReader, elements: Sequence[_Element], ends: Sequence[int]) -> None:
        self._reader = reader
        self._elements = elements
        self._ends = ends
        self._next = 1  # the first one is the root
        self._leaves: list[ParquetLeaf] = []

    def schema(self) -> ParquetSchema:
        """The schema of all elements."""
        columns, stored = [], []
        for number in range(self._checked(self._elements[0].children)):
            first = self._next
            columns.append(self._node(number, (), 0, 0))
            data = self._reader.between(self._ends[first - 1], self._ends[self._next - 1])
            stored.append((self._next - first, data))
        if self._next < len(self._elements):
            raise self._reader.error("a schema with more fields than its groups have")
        return ParquetSchema(tuple(columns), tuple(self._leaves), tuple(stored))

    def _checked(self, count: int) -> int:
        if not 0 <= count <= ELEMENTS_MAX:
            raise self._reader.error(f"a group of {count} fields")
        return count

    def _node(self, column: int, above: tuple[str, ...], definition: int, repetition: int) -> ParquetNode:
        if self._next == len(self._elements):
            raise self._reader.error("a schema with groups that lack fields")
        element = self._elements[self._next]
        self._next += 1
        if element.repetition not in (_REQUIRED, _OPTIONAL, _REPEATED):
            raise self._reader.error(f"a schema with an unknown repetition {element.repetition}")
        if len(above) >= NESTING_MAX:
            raise self._reader.error(f"a schema nested over {NESTING_MAX} deep")
        names = (*above, element.name)
        definition += element.repetition != _REQUIRED
        repetition += element.repetition == _REPEATED
        first = len(self._leaves)
        children: tuple[ParquetNode, ...] = ()
        if element.type is None:
            fields = range(self._checked(element.children))
            children = tuple(self._node(column, names, definition, repetition) for _ in fields)
        else:
            self._leaves.append(self._leaf(element, column, names, definition, repetition))
        return ParquetNode(
            element.name,
            children,
            range(first, len(self._leaves)),
            element.type is None and not element.is_nested,
            element.repetition == _REPEATED,
        )

    def _leaf(
        self, element: _Element, column: int, names: tuple[str, ...], definition: int, repetition: int
    ) -> ParquetLeaf:
        try:
            type_ = PhysicalType(element.type or 0)
        except ValueError as error:
            raise self._reader.error(f"column {'.'.join(names)!r:.80} of an unknown type {element.type}") from error
        width = element.width if type_ == PhysicalType.FIXED_LEN_BYTE_ARRAY else _WIDTHS.get(type_, 0)
        if width < 0 or element.children:
            raise self._reader.error(f"column {'.'.join(names)!r:.80} with values of {width} bytes, or with children")
        return ParquetLeaf(len(self._leaves), column, names, type_, width, definition, repetition)
