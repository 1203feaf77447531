"""The shards that a `data.list` names.

It has one line `SHARD_DIR DATATYPES` per shard. Its paths are as the user typed them when the shards were made,
relative to the directory of that day. So each path is tried as written, then relative to the list, then by its last
component beside the list. The last word of a line is the datatypes and everything before it is the path, so paths may
contain spaces. A path with braces (`touchfs.format.braces`) that nothing has is a line for each of its names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from touchfs.core.errors import FormatError, LocationError, UsageError, map_os_errors
from touchfs.core.location import Location
from touchfs.core.urls import climbs
from touchfs.format.braces import NAMES_MAX, BracePattern, parse_braces
from touchfs.source.data import DATA
from touchfs.source.named.addresses import is_address
from touchfs.source.named.locations import Locations

# A path has at most 4096 bytes, and datatypes follow. A file with longer lines is not a list.
LINE_MAX = 8192
LINE = re.compile(rb"([^\0]*\S)\s+(\w+(?:\+\w+)*)", re.ASCII)


def listed_places(
    listing: str, locations: Sequence[str], is_there: Callable[[Sequence[str]], bool]
) -> Iterator[list[str]]:
    """Yield paths where each shard of the list at a path may be, the likeliest first.

    Braces are expanded, unless `is_there` is true of the places of the line as written. `locations` are the URLs that
    the list may name places below. Raises FormatError, SourceError, and LocationError for a URL that is not allowed.
    """
    beside = Location.of(os.path.dirname(Location.of(listing).absolute.path))
    for number, path, pattern in _patterns(listing):
        literal = list[str]()
        if pattern is not None:
            with suppress(LocationError):  # braces may be in the part that decides
                literal = _places(path, beside, locations)
        names = [path] if pattern is None or is_there(literal) else pattern
        for name in names:
            try:
                yield _places(name, beside, locations)
            except LocationError as error:
                raise LocationError(f"line {number}: {error}", path=listing) from error


def _patterns(listing: str) -> list[tuple[int, str, BracePattern | None]]:
    """The numbers of the lines in a list, their paths as written, and what the braces of these stand for, in all at
    most `NAMES_MAX` names.
    """
    found, count = list[tuple[int, str, BracePattern | None]](), 0
    for number, path in _lines(listing):
        try:
            pattern = parse_braces(path)
        except UsageError as error:
            raise FormatError(f"line {number}: {error.message}", path=listing) from error
        count += 0 if pattern is None else pattern.count
        if count > NAMES_MAX:
            raise FormatError(f"line {number}: the braces stand for more than {NAMES_MAX:,} names", path=listing)
        found.append((number, path, pattern))
    return found


def _lines(listing: str) -> list[tuple[int, str]]:
    shards = []
    with map_os_errors(listing), DATA.stream(listing) as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE_MAX), b""), 1):
            stripped = line.strip()
            if not stripped:
                continue
            match = LINE.fullmatch(stripped)
            if match is None:
                raise FormatError(f"is not a dataset: line {number} is not `SHARD_DIR DATATYPES`", path=listing)
            shards.append((number, os.fsdecode(match[1])))
    if not shards:
        raise FormatError("lists no shard", path=listing)
    return shards


def _places(path: str, beside: Location, locations: Sequence[str]) -> list[str]:
    """Paths where a listed shard may be, the likeliest first. Raises LocationError for a URL that is not allowed."""
    name = os.path.basename(path.rstrip("/"))
    if Location.of(path).is_url or (beside.is_url and is_address(path)):
        Locations(allowed=locations).find(path)
        return [path]
    if beside.is_url:  # a list of another store names no file of this machine, and nothing above itself
        if climbs(name):
            raise LocationError("leads out of the directory of the list", path=path)
        steps = [] if os.path.isabs(path) or climbs(path) else [path]
        return [beside.beneath(each) for each in (*steps, name)]
    places = [path, beside.beneath(path), beside.beneath(name)]
    if "/" not in path:  # a typed output directory would precede it, so a bare name is relative to the list
        places.reverse()
    return places
