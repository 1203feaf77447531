"""The features of a table: who declares them, and which of its columns has class labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from touchfs.catalog.catalog import Labels
from touchfs.features import ClassLabel, Features
from touchfs.format.arrow.metadata import Kind
from touchfs.format.arrow.schema import IpcSchema
from touchfs.shard.options import Options


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
