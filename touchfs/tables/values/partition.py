"""The values that directories of a partitioned table have in their names: `year=2024/lang=de/part-0.parquet`.

Hive, Spark, pyarrow and others write a table so. A value is one of each row below its directory. It is text, or an
integer of 32 bits if all values of its name in the dataset are that, as pyarrow infers it; the name
`__HIVE_DEFAULT_PARTITION__` is null, and a row below no directory of a name has null, too. Escapes as `%20` are those
of URLs. Of two directories of one name the outer one counts.

The values of a shard are kept as the text of a JSON object, which is empty if there are none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias
from urllib.parse import unquote

Value: TypeAlias = int | str | None

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
_INTEGERS = range(-(1 << 31), 1 << 31)
# Digits of any of them without zeros before
_DIGITS = 10
# The types of columns, as `touchfs info` spells them
INTEGER, TEXT = "int32", "utf8"


def partitions_of(directories: Sequence[str]) -> list[str]:
    """The values in the paths of directories, one for each shard of a dataset."""
    found = [_texts(directory) for directory in directories]
    values: dict[str, set[str | None]] = {}
    for texts in found:
        for name, text in texts.items():
            values.setdefault(name, set()).add(text)
    integers = {name for name, texts in values.items() if all(map(_is_integer, texts - {None}))}

    def value(name: str, text: str | None) -> Value:
        return text if text is None or name not in integers else int(text)

    return [build_partition({name: value(name, texts.get(name)) for name in values}) for texts in found]


def build_partition(values: dict[str, Value]) -> str:
    return json.dumps(values) if values else ""


def parse_partition(text: str) -> dict[str, Value]:
    """The values by name. Raises ValueError for another text."""
    values = json.loads(text or "{}")
    if not isinstance(values, dict) or not all(type(value) in (int, str, type(None)) for value in values.values()):
        raise ValueError("not the values of directories")
    return values


def without_columns(text: str, columns: Iterable[str]) -> str:
    """The values that are shown in rows of a file with these columns: a column of the file comes first."""
    return build_partition({name: value for name, value in parse_partition(text).items() if name not in {*columns}})


def partition_types(texts: Iterable[str]) -> dict[str, str]:
    """The type of each name's values in a dataset: `INTEGER` or `TEXT`."""
    found: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        for name, value in parse_partition(text).items():
            if isinstance(value, int) or name not in found:
                found[name] = INTEGER if isinstance(value, int) else TEXT
    return found


def with_partition(rows: list[bytes], text: str) -> list[bytes]:
    """Rows as lines of JSON objects, with these values at the end of each."""
    if not text:
        return rows
    end = (json.dumps(parse_partition(text), ensure_ascii=False)[1:] + "\n").encode("utf-8", "surrogatepass")
    return [(row.rstrip()[:-1] + (b"" if row.startswith(b"{}") else b", ")) + end for row in rows]


def _texts(directory: str) -> dict[str, str | None]:
    """The texts in the path of a directory by their names."""
    found: dict[str, str | None] = {}
    for part in directory.split("/"):
        name, is_value, text = part.partition("=")
        if is_value:
            value = _decoded(text)
            found.setdefault(_decoded(name), None if value == _NULL else value)
    return found


def _decoded(text: str) -> str:
    """A text without escapes; as it is if these are no UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def _is_integer(text: str | None) -> bool:
    if text is None or not _INTEGER.fullmatch(text):
        return False
    return len(text.lstrip("-0")) <= _DIGITS and int(text) in _INTEGERS
