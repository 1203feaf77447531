"""Find the columns of an Arrow table whose cells are files, by the schema and the declared features alone.

    binary, large_binary, binary_view      the cell is a file
    struct with a child `bytes` of these   that child is a file (Hugging Face's Image and Audio, Video)
    Array3D, Array4D by the features       the cell is a .npy
    fixed_size_list of numbers             the cell is a .npy
    list of bytes, or of such structs      each element is a file
    File by the features or the schema     the cell is a file with the extension of its column

All other columns, and the other children of such structs, are in the JSON of the row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.names import distinct, quote
from touchfs.features import Array3D, Array4D, FeatureType, File
from touchfs.features.file import EXTENSION_KEY
from touchfs.form.arrays import Npy
from touchfs.form.base import Form
from touchfs.form.plain import BYTES
from touchfs.format.arrow.column import numbers_of
from touchfs.format.arrow.metadata import Kind
from touchfs.format.arrow.schema import IpcField, IpcSchema
from touchfs.shard.options import NESTED
from touchfs.tables.rows.rows import CellKinds, Naming
from touchfs.tables.values.field_paths import Path

# Elements of a list that are files: each is a column of the table in memory. Longer lists are in the JSON.
ITEMS_MAX = 64
KEYS = ("id", "key", "__key__")
_EXTENSION = re.compile(r"[^./][^/]{0,63}")
_BINARY = (Kind.BINARY, Kind.LARGE_BINARY, Kind.BINARY_VIEW)
_LISTS = (Kind.LIST, Kind.LARGE_LIST)
_TEXT = (Kind.UTF8, Kind.LARGE_UTF8, Kind.UTF8_VIEW)


def column_names(schema: IpcSchema) -> list[str]:
    """The names of columns as they are shown: the second of two of one name gets `~2`."""
    return distinct([field.name for field in schema.fields])


@dataclass(frozen=True, slots=True)
class CellColumn:
    """A column whose cells are files. `path` leads to their bytes.

    `named_by` are the numbers of the text columns, or children, whose values end in the extension of a cell: the first
    that has one counts. `video` are the numbers of the children `path` and `mode` of Videos, which may be files beside
    the table. With `is_file`, the column stands for files of an extension, as those of a tar. `item` is the number
    of the element that the cells are in a list; None if they are in no list.
    """

    name: str
    path: tuple[int, ...]
    form: Form
    extension: str = ""
    is_file: bool = False
    named_by: tuple[tuple[int, ...], ...] = ()
    video: tuple[int, ...] = ()
    item: int | None = None

    @property
    def is_video(self) -> bool:
        return bool(self.video)

    def fits(self, lengths: NDArray[np.int64]) -> NDArray[np.bool_] | np.bool_:
        """For each cell, true if its length is that of the arrays. Cells that are no arrays may have any length."""
        if not isinstance(self.form, Npy):
            return np.True_
        has: NDArray[np.bool_] = lengths == np.dtype(self.form.dtype).itemsize * math.prod(self.form.shape)
        return has


def cell_columns(
    schema: IpcSchema, features: Mapping[str, FeatureType], longest: Callable[[tuple[int, ...]], int]
) -> list[CellColumn]:
    """The columns whose cells are files, in their order. Raises FormatError for features that do not fit.

    `longest` gets the path of bytes in lists, and returns how many elements of a list are files at most: each is a
    column, called `images.0`, `images.1` and so on.
    """
    columns = []
    names = column_names(schema)
    for number, (name, field) in enumerate(zip(names, schema.fields, strict=True)):
        column = _cell_column((number,), field, features.get(field.name))
        if column is not None:
            columns.append(replace(column, name=name))
        elif field.type.kind in _LISTS and field.codes is None and len(field.children) == 1:
            element = _cell_column((number, 0), field.children[0], None)
            if element is not None and element.form == BYTES and not element.is_file:
                element = replace(element, video=())
                columns += [replace(element, name=f"{name}.{i}", item=i) for i in range(longest(element.path))]
    names = distinct([column.name for column in columns])
    return [replace(column, name=name) for name, column in zip(names, columns, strict=True)]


def whole_files(columns: Sequence[CellColumn]) -> dict[int, str]:
    """The extensions of the columns that stand for files of an extension, by their positions; the first of each."""
    found: dict[str, int] = {}
    for place, column in enumerate(columns):
        if column.is_file:
            found.setdefault(column.extension, place)
    return {place: extension for extension, place in found.items()}


def cell_kinds(columns: Sequence[CellColumn], *, is_nested: bool) -> CellKinds:
    """The kinds of the files of these columns, of which there are none yet."""
    names = [column.name for column in columns]
    return CellKinds(Naming(names, is_nested, whole_files(columns)), len(columns))


def are_only_files(schema: IpcSchema, columns: Sequence[CellColumn], key: int | None) -> bool:
    """True if a row is whole files and its key: its JSON would only repeat the key. A row of a key alone has it."""
    others = {*range(len(schema.fields))} - {column.path[0] for column in columns}
    return 0 < len(columns) == len(whole_files(columns)) and others <= {key}


def are_nested(columns: Sequence[CellColumn], layout: str | None) -> bool:
    """True if rows are directories in this layout. With None the columns decide."""
    if layout is not None:
        return layout == NESTED
    if any(column.item is not None for column in columns):
        return True
    return len(columns) > 1 and len(whole_files(columns)) < len(columns)


def _cell_column(path: Path, field: IpcField, feature: FeatureType | None) -> CellColumn | None:
    if field.codes is not None:
        return None
    kind = field.type.kind
    if isinstance(feature, Array3D | Array4D) and kind in _BINARY:
        return CellColumn(field.name, path, Npy(np.dtype(feature.dtype).str, feature.shape), "npy")
    if kind in _BINARY:
        extension = _file_extension(field, feature)
        return CellColumn(field.name, path, BYTES, extension, is_file=bool(extension))
    if kind == Kind.FIXED_SIZE_LIST and (numbers := numbers_of([field])) is not None:
        dtype, shape = numbers
        return CellColumn(field.name, path, Npy(dtype.str, shape), "npy")
    if kind != Kind.STRUCT:
        return None
    children = {child.name: (place, child) for place, child in enumerate(field.children) if child.codes is None}
    place, data = children.get("bytes", (0, None))
    if data is None or data.type.kind not in _BINARY:
        return None
    texts = [children[name][0] for name in ("extension", "path") if _is_text(children.get(name))]
    is_video = all(_is_text(children.get(name)) for name in ("mode", "path", "extension", "checksum"))
    video = (children["path"][0], children["mode"][0]) if is_video else ()
    return CellColumn(field.name, (*path, place), BYTES, named_by=tuple((*path, each) for each in texts), video=video)


def _file_extension(field: IpcField, feature: FeatureType | None) -> str:
    """The extension of the files of a column, "" if it says none that can end a name."""
    extension = feature.extension if isinstance(feature, File) else field.metadata.get(EXTENSION_KEY.decode(), "")
    return (
        extension
        if _EXTENSION.fullmatch(extension) and quote(extension) == extension.encode("utf-8", "replace")
        else ""
    )


def _is_text(child: tuple[int, IpcField] | None) -> bool:
    return child is not None and child[1].type.kind in _TEXT


def key_column(schema: IpcSchema, chosen: str | None) -> int | None:
    """The number of the column with the keys: the chosen one, else the first of `KEYS` that is text or integers.

    Raises FormatError for a chosen column that is not there, or of another type.
    """
    names = [field.name for field in schema.fields]
    if chosen is not None:
        if names.count(chosen) != 1:
            raise FormatError(f"has no column {chosen!r} for --key: there are {_listed(names)}")
        if not _can_be_key(schema.fields[names.index(chosen)]):
            raise FormatError(f"its column {chosen!r} cannot have keys: they are text or integers")
        return names.index(chosen)
    return next(
        (
            names.index(name)
            for name in KEYS
            if names.count(name) == 1 and _can_be_key(schema.fields[names.index(name)])
        ),
        None,
    )


def _can_be_key(field: IpcField) -> bool:
    return field.codes is None and field.type.kind in (*_TEXT, Kind.INT)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")


def spell_type(field: IpcField) -> str:
    """The type of a column for users: `int64`, `list<utf8>`, `struct<bytes: binary, path: utf8>`."""
    kind = field.type
    if kind.dtype is not None:
        text = kind.dtype.name
    elif kind.kind == Kind.STRUCT:
        text = f"struct<{', '.join(f'{child.name}: {spell_type(child)}' for child in field.children)}>"
    elif field.children:
        size = f", {kind.size}" if kind.kind == Kind.FIXED_SIZE_LIST else ""
        text = f"{kind.kind.name.lower()}<{', '.join(map(spell_type, field.children))}{size}>"
    else:
        text = kind.kind.name.lower()
    return text if field.codes is None else f"dictionary<{text}>"
