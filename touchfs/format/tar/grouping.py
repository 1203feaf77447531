"""Which members of a tar are a sample, as those see it who index tars. It is told while the members go by.

    Lhotse       every two members. It does not look at their names, so one member too many makes wrong pairs of all
                 that follow; here both must be files that differ in the suffix only.
    Energon      a run of files with the same key: up to the first dot of what is behind the directories.
    NeMo         a run of files with the same stem: without the directories, up to the last dot.
    NeMo's v2    as Energon, but nothing may be out of order: every file has a key, no key comes back, and a sample is
                 one .json and something more. To know that, it keeps the keys.
    wids         as Energon, but files with a dot in front count.
    members      every file by itself.

Source: lhotse/indexing.py, Megatron-Energon's prepare.py, wids/wids.py, NeMo's
nemo/collections/common/data/lhotse/indexed_adapters.py.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Protocol

from touchfs.errors import FormatError

# Where an index is: beside its tar or JSONL file, as <its name> and
INDEX_SUFFIX = ".idx"
WDS_V2_SUFFIX = ".wds-v2.idx"
COMPANION_SUFFIX = ".meta.json"  # after that

_KEY = re.compile(r"((?:.*/)?[^./]+)\.[^/]*", re.DOTALL)
_WIDS_KEY = re.compile(r"((?:.*/)?[^./]*)\.[^/]*", re.DOTALL)
_PRIVATE = re.compile(r"__[^/]*__(?:/|$)")
_METADATA = ".json"


class Dialect(enum.Enum):
    """Who says what a sample is."""

    LHOTSE = "lhotse"
    ENERGON = "energon"
    NEMO = "nemo"
    WDS_V2 = "wds-v2"
    WIDS = "wids"
    MEMBERS = "members"


class Grouping(Protocol):
    """Is shown all members in order, and then told that they are all. Raises FormatError where they make no samples."""

    def begins(self, name: str, offset: int, is_file: bool) -> bool:
        """Whether a sample begins with this member, whose first header is at `offset`."""
        ...

    def finish(self) -> None: ...


def grouping(dialect: Dialect) -> Grouping:
    return _GROUPINGS[dialect]()


class PairGrouping:
    __slots__ = ("_first", "_is_open", "_offset", "_stem")

    def __init__(self) -> None:
        self._first, self._offset, self._stem, self._is_open = "", 0, "", False

    def begins(self, name: str, offset: int, is_file: bool) -> bool:
        if not is_file:
            raise FormatError(f"{name!r} is no file, and Lhotse's samples are pairs of files", offset=offset)
        stem, _, suffix = name.rpartition(".")  # `_stem` without a call, which would take a tenth of all indexing
        if "/" in suffix or not stem or stem[-1] == "/":
            stem = name
        if self._is_open:
            self._is_open = False
            if stem == self._stem:
                return False
            message = f"{name!r} is not the pair of {self._first!r} before it, as Lhotse takes it to be"
            raise FormatError(message, offset=offset)
        if stem == self._stem and name != self._first:
            raise FormatError(f"{name!r} is one more than the two members of Lhotse's samples", offset=offset)
        self._first, self._offset, self._stem, self._is_open = name, offset, stem, True
        return True

    def finish(self) -> None:
        if self._is_open:
            raise FormatError(f"{self._first!r}, the last member, has no pair, as Lhotse needs", offset=self._offset)


class RunGrouping:
    """A file without a key is in no sample, and does not end one."""

    __slots__ = ("_key", "_last")

    def __init__(self, key: Callable[[str], str]) -> None:
        self._key = key
        self._last = ""

    def begins(self, name: str, offset: int, is_file: bool) -> bool:
        key = self._key(name) if is_file else ""
        if not key or key == self._last:
            return False
        self._last = key
        return True

    def finish(self) -> None:
        pass


class MemberGrouping:
    __slots__ = ()

    def begins(self, name: str, offset: int, is_file: bool) -> bool:
        return is_file

    def finish(self) -> None:
        pass


class StrictRunGrouping:
    __slots__ = ("_key", "_keys", "_names", "_offset")

    def __init__(self) -> None:
        self._key, self._offset = "", 0
        self._keys: set[str] = set()
        self._names: set[str] = set()  # of the sample at hand

    def begins(self, name: str, offset: int, is_file: bool) -> bool:
        if not is_file:
            return False
        key = _strict_key(name, offset)
        if key == self._key:
            if name in self._names:
                raise FormatError(f"{name!r} comes twice, which NeMo refuses", offset=offset)
            self._names.add(name)
            return False
        self.finish()
        if key in self._keys:
            raise FormatError(f"{name!r} has the key of an earlier sample, which NeMo refuses", offset=offset)
        self._keys.add(key)
        self._key, self._offset, self._names = key, offset, {name}
        return True

    def finish(self) -> None:
        metadata = sum(name.endswith(_METADATA) for name in self._names)
        if self._names and (metadata != 1 or len(self._names) == 1):
            others = len(self._names) - metadata
            message = f"sample {self._key!r} has {metadata} {_METADATA} and {others} others, and NeMo wants 1 and some"
            raise FormatError(message, offset=self._offset)


def webdataset_key(name: str) -> str:
    """Empty: in no sample."""
    found = None if _PRIVATE.match(name) else _KEY.fullmatch(name)
    return found[1] if found else ""


def _wids_key(name: str) -> str:
    found = _WIDS_KEY.fullmatch(name)
    return f"{found[1]}." if found else ""


def _stem(name: str) -> str:
    """Up to the last dot of what is behind the directories. A dot in front is no such dot."""
    stem, _, extension = name.rpartition(".")
    return name if "/" in extension or not stem or stem.endswith("/") else stem


def _base_stem(name: str) -> str:
    return _stem(name).rpartition("/")[2]


def _strict_key(name: str, offset: int) -> str:
    *directories, base = [part for part in name.split("/") if part] or [""]
    prefix, _, extension = base.partition(".")
    if name.startswith("/") or not prefix or not extension or {".", ".."} & set(directories):
        raise FormatError(f"{name!r} is no name that NeMo takes for a file of a sample", offset=offset)
    return "/".join([*directories, prefix])


_GROUPINGS: dict[Dialect, Callable[[], Grouping]] = {
    Dialect.LHOTSE: PairGrouping,
    Dialect.ENERGON: lambda: RunGrouping(webdataset_key),
    Dialect.NEMO: lambda: RunGrouping(_base_stem),
    Dialect.WDS_V2: StrictRunGrouping,
    Dialect.WIDS: lambda: RunGrouping(_wids_key),
    Dialect.MEMBERS: MemberGrouping,
}
