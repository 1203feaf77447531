"""Group the members of a tar into samples by the rules of the tools that index tars, in one pass.

    Lhotse       every two members. It ignores their names, so one extra member shifts all pairs after it; here both
                 must be files whose names differ only in the suffix.
    Energon      consecutive files with the same key: the path up to the first dot of its last component.
    NeMo         consecutive files with the same stem: the last component up to its last dot.
    NeMo's v2    as Energon, but strict: every file has a key, no key comes again later, and a sample is one .json and
                 at least one other file. To check this, it keeps the keys.
    wids         as Energon, but files that begin with a dot count.
    members      every file is a sample.

Source: lhotse/indexing.py, Megatron-Energon's prepare.py, webdataset/tariterators.py, wids/wids.py, NeMo's
nemo/collections/common/data/lhotse/indexed_adapters.py.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Protocol

from touchfs.core.errors import FormatError

# An index is beside its tar or JSONL file, with the file's name and one of these suffixes.
INDEX_SUFFIX = ".idx"
WDS_V2_SUFFIX = ".wds-v2.idx"
COMPANION_SUFFIX = ".meta.json"  # appended to the name of the index

# WebDataset's own pattern, which Energon has too: a key may end in a slash, as that of `a/.b`.
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")
_WIDS_KEY = re.compile(r"((?:.*/)?[^./]*)\.[^/]*", re.DOTALL)
_PRIVATE = re.compile(r"__[^/]*__(?:/|$)")
_METADATA = ".json"


class Dialect(enum.Enum):
    """The tool or rule that defines a sample."""

    LHOTSE = "lhotse"
    ENERGON = "energon"
    NEMO = "nemo"
    WDS_V2 = "wds-v2"
    WIDS = "wids"
    MEMBERS = "members"


class Grouping(Protocol):
    """Groups members into samples. Call `begins` for all members in order, then `finish`.

    Both raise FormatError if the members do not form samples.
    """

    def begins(self, name: str, offset: int, is_file: bool) -> bool:
        """Return whether a sample begins with this member, whose first header is at `offset`."""
        ...

    def finish(self) -> None:
        """Check the last sample after all members."""
        ...


def grouping(dialect: Dialect) -> Grouping:
    return _GROUPINGS[dialect]()


class PairGrouping:
    """Every two members are a sample, and must be files of one stem."""

    __slots__ = ("_first", "_is_open", "_offset", "_stem")

    def __init__(self) -> None:
        self._first, self._offset, self._stem, self._is_open = "", 0, "", False

    def begins(self, name: str, offset: int, is_file: bool) -> bool:
        if not is_file:
            raise FormatError(f"{name!r} is not a file, but Lhotse's samples are pairs of files", offset=offset)
        stem, _, suffix = name.rpartition(".")  # `_stem` without a call, which would take a tenth of all indexing
        if "/" in suffix or not stem or stem[-1] == "/":
            stem = name
        if self._is_open:
            self._is_open = False
            if stem == self._stem:
                return False
            message = f"{name!r} is not the partner of {self._first!r} before it, but Lhotse pairs them"
            raise FormatError(message, offset=offset)
        if stem == self._stem and name != self._first:
            raise FormatError(f"{name!r} is a third member of one stem, but Lhotse's samples have two", offset=offset)
        self._first, self._offset, self._stem, self._is_open = name, offset, stem, True
        return True

    def finish(self) -> None:
        if self._is_open:
            raise FormatError(
                f"{self._first!r}, the last member, has no partner, but Lhotse requires pairs", offset=self._offset
            )


class RunGrouping:
    """Consecutive files with one key are a sample. A file without a key belongs to no sample and does not end one."""

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
        """See `Grouping.finish`."""


class MemberGrouping:
    """Every file is a sample."""

    __slots__ = ()

    def begins(self, name: str, offset: int, is_file: bool) -> bool:
        return is_file

    def finish(self) -> None:
        """See `Grouping.finish`."""


class StrictRunGrouping:
    """Consecutive files with one key are a sample, checked as NeMo's second version does."""

    __slots__ = ("_key", "_keys", "_names", "_offset")

    def __init__(self) -> None:
        self._key, self._offset = "", 0
        self._keys: set[str] = set()
        self._names: set[str] = set()  # of the current sample

    def begins(self, name: str, offset: int, is_file: bool) -> bool:
        if not is_file:
            return False
        key = _strict_key(name, offset)
        if key == self._key:
            if name in self._names:
                raise FormatError(f"{name!r} occurs twice, which NeMo refuses", offset=offset)
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
            message = (
                f"sample {self._key!r} has {metadata} {_METADATA} and {others} others; NeMo requires 1 and at least one"
            )
            raise FormatError(message, offset=self._offset)


def webdataset_split(name: str) -> tuple[str, str] | None:
    """Key and extension of a file by WebDataset's rule; None if the file belongs to no sample."""
    found = None if _PRIVATE.match(name) else _NAME.fullmatch(name)
    return None if found is None else (found[1], found[2])


def webdataset_key(name: str) -> str:
    """Return the key of a file by WebDataset's rule; empty if the file belongs to no sample."""
    found = webdataset_split(name)
    return found[0] if found else ""


def _wids_key(name: str) -> str:
    found = _WIDS_KEY.fullmatch(name)
    return f"{found[1]}." if found else ""


def _stem(name: str) -> str:
    """Return the path up to the last dot of its last component. A leading dot does not count."""
    stem, _, extension = name.rpartition(".")
    return name if "/" in extension or not stem or stem.endswith("/") else stem


def _base_stem(name: str) -> str:
    return _stem(name).rpartition("/")[2]


def _strict_key(name: str, offset: int) -> str:
    *directories, base = [part for part in name.split("/") if part] or [""]
    prefix, _, extension = base.partition(".")
    if name.startswith("/") or not prefix or not extension or {".", ".."} & set(directories):
        raise FormatError(f"{name!r} is not a valid name of a sample's file for NeMo", offset=offset)
    return "/".join([*directories, prefix])


_GROUPINGS: dict[Dialect, Callable[[], Grouping]] = {
    Dialect.LHOTSE: PairGrouping,
    Dialect.ENERGON: lambda: RunGrouping(webdataset_key),
    Dialect.NEMO: lambda: RunGrouping(_base_stem),
    Dialect.WDS_V2: StrictRunGrouping,
    Dialect.WIDS: lambda: RunGrouping(_wids_key),
    Dialect.MEMBERS: MemberGrouping,
}
