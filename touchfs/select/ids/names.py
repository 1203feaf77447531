"""What may follow `@` in an expression.

Who types an expression on a command line, or writes it in Python, is the process that reads it: `@FILE` names a file.
A spec that is written into a mount is read by the daemon, with the rights of its user, as a filter in a URL is read by
`touchfs serve`: there, `@NAME` names one of the lists that `--ids NAME=FILE` gave at the start. They are in the
environment, with the hashes of their contents, so all processes of a mount use the same ids as long as it lives.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError
from touchfs.core.location import Location
from touchfs.core.packed_bytes import PackedBytes
from touchfs.select.ids.id_list import IdList, open_list
from touchfs.select.ids.reader import READERS, Column
from touchfs.select.predicates import Kinds

IDS_VARIABLE = "TOUCHFS_IDS"
_FILE = re.compile(rf"(.+(?:{'|'.join(map(re.escape, READERS))}))(?::(.+))?", re.DOTALL)
NAME = re.compile(r"[\w-]+")
# The column of a list that is given, if it names none: which field will be tested is not known yet.
_FIELD = "key"
_SUFFIXES = ", ".join(READERS)


class Ids(Protocol):
    """A list of ids. `spelled` stands for it in the canonical text of an expression."""

    @property
    def spelled(self) -> str:
        """What follows `@`."""
        ...

    @property
    def kinds(self) -> Kinds:
        """The kind of the ids."""
        ...

    def has(self, value: Any) -> bool:
        """True if a value is one of them."""
        ...

    def have(self, texts: PackedBytes) -> NDArray[np.bool_]:
        """Whether each text is one of them, as `has` says of it: bool[n]."""
        ...


# Opens what follows `@`, for the ids of a field of this name.
OpenIds: TypeAlias = Callable[[str, str], Ids]


class Unopened:
    """A list that only the text of an expression is about."""

    kinds = Kinds(0)

    def __init__(self, name: str) -> None:
        self.spelled = name

    def has(self, value: Any) -> bool:
        """Nothing is looked up."""
        raise UsageError(f"the list of ids @{self.spelled} is not open")

    def have(self, texts: PackedBytes) -> NDArray[np.bool_]:
        """Nothing is looked up."""
        raise UsageError(f"the list of ids @{self.spelled} is not open")


def unopened(name: str, field: str) -> Ids:
    """A list that is not opened: for expressions that are only parsed."""
    return Unopened(name)


def open_file(name: str, field: str) -> IdList:
    """The list in a file, `FILE` or `FILE:COLUMN`. Raises UsageError and what `open_list` raises."""
    path, column = _split(name)
    return open_list(Location.parse(path).absolute.path, Column(column, field))


def open_given(name: str, field: str) -> IdList:
    """One of the lists that were given at the start. Raises UsageError if it has no such name."""
    given = _given()
    if name not in given:
        known = f", and there are {', '.join(map('@{}'.format, given))}" if given else ""
        raise UsageError(f"where: @{name} is no list that --ids NAME=FILE has given{known}")
    path, column, digest = given[name]
    return open_list(path, Column(column, _FIELD), digest)


def given_names() -> list[str]:
    """The names of the lists that were given at the start."""
    return [*_given()]


def give(lists: Sequence[str]) -> None:
    """Give lists, each `NAME=FILE` or `NAME=FILE:COLUMN`, to this process and to those that it starts.

    Raises UsageError and what `open_list` raises.
    """
    given: dict[str, tuple[str, str | None, str]] = {}
    for each in lists:
        name, separator, file = each.partition("=")
        if not separator or not NAME.fullmatch(name):
            raise UsageError(f"--ids {each}: write NAME=FILE, with a name of letters, digits, _ and -")
        if name in given:
            raise UsageError(f"--ids {each}: there are two lists of this name")
        path, column = _split(file)
        path = Location.parse(path).absolute.path
        given[name] = path, column, open_list(path, Column(column, _FIELD)).spelled
    os.environ[IDS_VARIABLE] = json.dumps(given)


def _given() -> dict[str, tuple[str, str | None, str]]:
    found: dict[str, tuple[str, str | None, str]] = json.loads(os.environ.get(IDS_VARIABLE) or "{}")
    return found


def _split(name: str) -> tuple[str, str | None]:
    match = _FILE.fullmatch(name)
    if match is None:
        advice = f"name a {_SUFFIXES}, or a column as in @FILE:COLUMN; a name with spaces is in quotes"
        raise UsageError(f"@{name} is no list of ids: {advice}")
    return match[1], match[2]
