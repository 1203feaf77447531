"""The features of a table: who declares them, and which of its columns have class labels and files."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from touchfs.catalog.catalog import Labels
from touchfs.features import ClassLabel, Features
from touchfs.format.arrow.metadata import Kind
from touchfs.format.arrow.schema import IpcSchema
from touchfs.shard.options import Options
from touchfs.tables.rows.asset import Asset, with_videos
from touchfs.tables.rows.columns import are_nested, cell_columns, cell_kinds, key_column
from touchfs.tables.rows.rows import ColumnFiles, TableRows
from touchfs.tables.values.field_paths import Path


class FeatureRows(TableRows):
    """Base class for tables whose files follow from their schema and features. Subclasses call `_describe` first."""

    def _describe(self, schema: IpcSchema, declared: Mapping[str, Any] | None, options: Options, source: str) -> None:
        """Find the columns that have files. `source` is the file of the shard that its labels are in.

        Raises FormatError.
        """
        self.features = features_of(options, declared, schema.metadata)
        self.labels = labels_of(schema, self.features, source)
        self.classes = classes_of(schema, self.features)
        self._columns = cell_columns(schema, self.features, self._longest)
        self._key = key_column(schema, options.key_column)
        self.is_nested = are_nested(self._columns, options.layout)
        self._kinds = cell_kinds(self._columns, is_nested=self.is_nested)
        self._defaults: dict[int, str] = {}

    def _longest(self, path: Path) -> int:
        """How many elements the lists of a column have at most that are files. By default, none are."""
        return 0

    @abstractmethod
    def _first_extension(self, place: int) -> str:
        """The extension of a column by the magic of its first cell that is not null; `UNKNOWN` if none is found."""

    def _default(self, place: int) -> str:
        """The extension of a column's cells that nothing else tells: that of its first cell."""
        if place not in self._defaults:
            self._defaults[place] = self._first_extension(place)
        return self._defaults[place]

    def _with_videos(
        self,
        files: ColumnFiles,
        place: int,
        table: str,
        values: Callable[[Path], Sequence[str | None]],
        first: int,
        problems: list[tuple[int, str]],
    ) -> ColumnFiles:
        """The files of a column, and those of its videos that are beside the file `table`. `values` reads a column."""
        column = self._columns[place]
        if not column.is_video:
            return files
        names, modes = (values((*column.path[:-1], child)) for child in column.video)
        return with_videos(
            files,
            table,
            names,
            modes,
            lambda row, problem: problems.append((first + row, problem)),
            lambda extension: self._kinds.number(place, os.path.basename(table), Asset(), extension),
        )


def features_of(options: Options, declared: Mapping[str, Any] | None, metadata: Mapping[str, str]) -> Features:
    """The features of the table: those of the options, of its cache, or of Hugging Face. Raises FormatError."""
    if options.features is not None:
        return Features.from_json(options.features)
    if declared is not None:
        return Features.from_json(declared)
    return Features.from_huggingface(metadata) or Features()


def classes_of(schema: IpcSchema, features: Features) -> dict[str, tuple[str, ...]]:
    """The names of the classes of each column of class labels, which is of integers."""
    found = {}
    for field in schema.fields:
        feature = features.get(field.name)
        if isinstance(feature, ClassLabel) and field.type.kind == Kind.INT and field.codes is None:
            found[field.name] = tuple(feature.names)
    return found


def labels_of(schema: IpcSchema, features: Features, source: str) -> Labels | None:
    """The first column of class labels by the features, which is of integers; None if there is none."""
    for number, field in enumerate(schema.fields):
        feature = features.get(field.name)
        if isinstance(feature, ClassLabel) and field.type.kind == Kind.INT and field.codes is None:
            return Labels(source, number, tuple(feature.names))
    return None
