"""Pages of a server: lists of samples, pages with links to others, and all of these as JSON.

URLs are relative to the root of the server, quoted, and made here: so none of them can be anything but a place there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any
from urllib.parse import quote, urlencode

from touchfs.explore.page import Page

# Above it pages are in `/-/`: the tree has no such name.
OWN = "-/"


@dataclass(frozen=True, slots=True)
class LinkedSample:
    """A sample in a list. `picture` is an image or a waveform, `picture_kind` says which; both may be ""."""

    position: int
    key: str
    text: str
    duration: str
    segments: int
    url: str
    picture: str
    picture_kind: str


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A list of samples: its source, its filter and its order, which may have a seed.

    With `ids` it has the samples of a list that was given by this name: only those that `also` has, too, and none that
    `but` has.
    """

    of: str = "samples"
    where: str = ""
    sort: str = "stored"
    seed: int = 0
    ids: str = ""
    but: str = ""
    also: str = ""

    def url(self, first: int = 0) -> str:
        """The URL of the list, from this place on."""
        return _asked(f"{OWN}samples", {**self._fields("of"), "from": first} if first else self._fields("of"))

    def sample_url(self, url: str, place: int) -> str:
        """The URL of a sample which says that it is at this place of the list."""
        return _asked(url, {**self._fields("in"), "at": place})

    def _fields(self, of: str) -> dict[str, str | int]:
        """The fields that a list of all samples has not. A given list has an order of its own."""
        plain = ListQuery(sort="listed" if self.ids else "stored")
        named = {of if name == "of" else name: name for name in self.__slots__}
        values = {field: (getattr(self, name), getattr(plain, name)) for field, name in named.items()}
        return {field: value for field, (value, default) in values.items() if value != default}


@dataclass(frozen=True, slots=True)
class SampleList:
    """Samples of a dataset: `total` ones, of which those from `first` on are listed, in an order.

    With a filter, `searched` is the place in the order up to which samples were looked at, and `is_unfinished` says
    that the time was over before there were enough. `following` and `previous` are URLs, or "". `problem` is what is
    wrong with the filter, `column` the place of that, from 0. `sources` are what lists can be of, `sorts` the facts
    that this one can be sorted by, and `fields` those that its filter can name. `ids`, `but` and `also` are as in a
    `ListQuery`, `given` are their possible values, and `is_counting` says that some are still being looked up. Where
    two are compared, `compared` has the words, counts and URLs of what only one has, and both.
    """

    of: str
    where: str
    sort: str
    seed: int
    first: int
    total: int
    searched: int
    rows: Sequence[LinkedSample]
    previous: str = ""
    following: str = ""
    problem: str = ""
    column: int | None = None
    remark: str = ""
    sources: Sequence[str] = ()
    sorts: Sequence[str] = ()
    fields: Sequence[str] = ()
    is_unfinished: bool = False
    ids: str = ""
    but: str = ""
    also: str = ""
    given: Sequence[str] = ()
    is_counting: bool = False
    compared: Sequence[tuple[str, int, str]] = ()

    @property
    def query(self) -> ListQuery:
        """The query that gives this list."""
        return ListQuery(self.of, self.where, self.sort, self.seed, self.ids, self.but, self.also)


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """A dataset: its page with cards, the first samples, whether cards are still being counted, and how many of its
    shards have errors.
    """

    page: Page
    samples: SampleList
    is_counting: bool
    broken: int = 0


@dataclass(frozen=True, slots=True)
class SamplePage:
    """A sample, and the URLs of those before and after it in its shard, or "".

    If it was opened from a list, `list` is the URL of that, and the others are those of the list: a page of it, where
    more of it is to be searched.
    """

    page: Page
    previous: str
    following: str
    list: str = ""


@dataclass(frozen=True, slots=True)
class ErrorList:
    """Lines about what is wrong, from `first` on, `total` in all: each with its shard, and the URL of its sample or of
    the whole report.
    """

    lines: Sequence[tuple[str, str, str]]
    first: int
    total: int
    previous: str = ""
    following: str = ""


def url_of(path: str) -> str:
    """The URL of a path of the tree."""
    return quote(os.fsencode(path))


def list_url(of: str = "samples", where: str = "", ids: str = "", but: str = "", also: str = "") -> str:
    """The URL of a list in its own order."""
    return ListQuery(of, where, "listed" if ids else "stored", 0, ids, but, also).url()


def _asked(url: str, asked: dict[str, str | int]) -> str:
    return url + ("&" if "?" in url else "?") * bool(asked) + urlencode(asked, errors="replace")


def json_of(page: object) -> str:
    """A page as JSON: each part is an object with its kind. Pictures are URLs, or left out."""
    return json.dumps(_plain(page), default=lambda _: None) + "\n"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__} | named
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    return value
