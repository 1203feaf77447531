"""The fields of a schema by their paths: the number of a column, then of a child, and so on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from touchfs.core.errors import FormatError

if TYPE_CHECKING:
    import pyarrow

    from touchfs.format.arrow.schema import IpcField, IpcSchema

Path = tuple[int, ...]


def parse_path(text: str) -> Path:
    """The path in a text such as `3` or `3.0`. Raises ValueError or FormatError."""
    path = tuple(map(int, text.split(".")))
    if min(path) < 0:
        raise FormatError(f"no column {text}")
    return path


def build_path(path: Path) -> str:
    return ".".join(map(str, path))


def in_batch(schema: IpcSchema) -> Iterator[tuple[Path, IpcField]]:
    """All fields that have buffers in a batch with their paths, in the order of their buffers."""

    for number, field in enumerate(schema.fields):
        yield from below((number,), field)


def below(path: Path, field: IpcField) -> Iterator[tuple[Path, IpcField]]:
    """A field with its path, and all below it that have buffers."""
    yield path, field
    if field.codes is None:
        for number, child in enumerate(field.children):
            yield from below((*path, number), child)


def beside_path(schema: IpcSchema, path: Path) -> frozenset[Path]:
    """The paths of all fields of a column beside a path: neither above it, nor at it or below it."""
    fields = below(path[:1], schema.fields[path[0]])
    return frozenset(each for each, _ in fields if each != path[: len(each)] and each[: len(path)] != path)


def values_in_lists(column: pyarrow.Array, depth: int) -> list[list[Any] | None]:
    """The values in lists, below so many structs of one child each."""
    lists = cast("list[list[Any] | None]", column.to_pylist())
    for _ in range(depth):
        lists = [each and [None if value is None else next(iter(value.values())) for value in each] for each in lists]
    return lists


def wanted(path: Path, field: IpcField, left_out: frozenset[Path]) -> Iterator[Path]:
    """The paths of the leaves of a field that are not left out."""
    if path in left_out:
        return
    if not field.children or not any(each[: len(path)] == path for each in left_out):
        yield path
        return
    for number, child in enumerate(field.children):
        yield from wanted((*path, number), child, left_out)


def wanted_columns(schema: IpcSchema, left_out: frozenset[Path]) -> list[int]:
    return [i for i, field in enumerate(schema.fields) if next(wanted((i,), field, left_out), None)]


def without(array: pyarrow.Array, path: Path, left_out: frozenset[Path]) -> pyarrow.Array | None:
    """An array without the children at some paths, of structs and lists of these; None if nothing of it is left."""
    if path in left_out:
        return None
    if not any(each[: len(path)] == path for each in left_out):
        return array
    import pyarrow

    if pyarrow.types.is_list(array.type) or pyarrow.types.is_large_list(array.type):
        values = without(array.values, (*path, 0), left_out)
        if values is None:
            return None
        make = pyarrow.list_ if pyarrow.types.is_list(array.type) else pyarrow.large_list
        kind = make(array.type.value_field.with_type(values.type))
        return pyarrow.Array.from_buffers(
            kind, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
        )
    kept = [
        (array.type.field(i), child)
        for i in range(array.type.num_fields)
        if (child := without(array.field(i), (*path, i), left_out)) is not None
    ]
    if not kept:
        return None
    fields = [pyarrow.field(field.name, child.type) for field, child in kept]
    return pyarrow.StructArray.from_arrays([child for _, child in kept], fields=fields, mask=array.is_null())
