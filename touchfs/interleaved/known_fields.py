"""A look at the fields that expressions name, before a job filters by them: a misspelt one would empty its output."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from touchfs.core.errors import UsageError
from touchfs.interleaved.read.reader import PartitionReader
from touchfs.select.expression import parse_where
from touchfs.select.rows import SIZE_FIELDS, spell_names, top_names

# Shards that are looked at: later ones may have columns that the first one lacks.
SHARDS_MAX = 4


def check_fields(reader: PartitionReader, expressions: Sequence[str]) -> None:
    """Raise UsageError if an expression names a column that none of the first shards has."""
    names = {name for each in expressions for name in top_names(parse_where(each))} - SIZE_FIELDS
    columns: set[str] = set()
    for partition in islice(reader.partitions(), SHARDS_MAX):
        if names <= columns:
            return
        columns.update(reader.columns(partition))
    if columns and not names <= columns:
        known = spell_names(columns | SIZE_FIELDS)
        raise UsageError(f"where: no row has the field {spell_names(names - columns)}: there are {known}")
