"""Where data is: at a path of this machine, at a URL of another store, or in an archive at either.

A URL names a client of fsspec and a path in it: `s3://bucket/shards`. `os.path.join` and `os.path.dirname` are right
for the `path` of any location, as its separator is `/`; what makes local paths absolute or resolves links would damage
a URL.

Queries of URLs, and slashes at their ends, are kept apart: a URL is known without, and requests for it have them again.
A query may be a signature, which must not get into names, logs and catalogs, and which is another one tomorrow. So they
are in the environment, where only the user's own processes see them.
"""

from __future__ import annotations

import json
import os
import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from touchfs.core.errors import UsageError
from touchfs.core.urls import QUERY, USER, InArchive, climbs, parse_in_archive, shown, without_secrets

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
_LOCAL = frozenset({"file", "local"})
_HTTP = frozenset({"http", "https"})
# What follows the scheme is a host, perhaps with a port.
_HOSTED = _HTTP | {"sftp", "ssh"}
# fsspec reads what is in an archive, or through a cache of its own, by chains. We read those of `touchfs.core.urls`.
_ARCHIVES = frozenset({"zip", "tar", "libarchive"})
_CHAIN = re.compile(r"::[a-zA-Z][a-zA-Z0-9+.-]*://")
# The query of a URL ends at a colon, which begins a path in the dataset: signatures have `%3A`.
_SIGNED = re.compile(r"(https?)(://[^?\s]+)\?([^:\s]*)(.*)", re.DOTALL | re.IGNORECASE)
# A URL that ends with slashes, but does not consist of its scheme alone.
_SLASHES = re.compile(r"(.+://.*[^/])/+", re.DOTALL)
_QUERIES_VARIABLE, _SLASHES_VARIABLE = "TOUCHFS_URL_QUERIES", "TOUCHFS_URL_SLASHES"


class Location(NamedTuple):
    """A place of data. Its store is asked for `path`, to which names can be joined. A URL has a `scheme`, in small
    letters (RFC 3986, section 3.1): "zip" for what is `inside` an archive, whose path is absolute.
    """

    # A tuple, as `touchfs --help` comes here for queries, and imports no dataclasses.
    path: str
    scheme: str = ""
    inside: InArchive | None = None

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Location:
        """The location that a text names. An existing local file of that name comes before a URL."""
        path = os.fspath(path)
        if "://" not in path or (match := _SCHEME.match(path)) is None or os.path.lexists(path):
            return cls(path)
        if (inside := parse_in_archive(path)) is not None:
            inside = InArchive(cls.of(inside.archive).absolute.path, inside.name)
            return cls(inside.path, "zip", inside)
        scheme = match[1].lower()
        return cls(scheme + path[match.end(1) :], scheme)

    @classmethod
    def parse(cls, path: str | os.PathLike[str]) -> Location:
        """Like `of`, for what a user names. Raises UsageError if a URL names local files or an archive in an archive,
        has no host, or holds a user or a password.
        """
        location, text = cls.of(path), os.fspath(path)
        # Only what looks like a URL is looked for on the disk: another path may be a mount that hangs.
        is_local = not location.is_url and ("://" not in text or os.path.lexists(text))
        if not is_local and (problem := _problem(location, text)):
            raise UsageError(problem, path=without_secrets(text))
        return location

    @property
    def is_url(self) -> bool:
        """True if the data are in another store than that of local files, as all that is in an archive."""
        return self.scheme != ""

    @property
    def speaks_http(self) -> bool:
        """True for the URL of a file of a web server. In such URLs, and in no others, names have escapes."""
        return self.scheme in _HTTP

    @property
    def absolute(self) -> Location:
        """The location with an absolute path. A URL is one, without its query and slashes at its end."""
        if self.inside is not None:
            return self
        return Location(_without_ending(self.path) if self.is_url else os.path.abspath(self.path), self.scheme)

    @property
    def resolved(self) -> str:
        """The absolute path with all links resolved. A URL has none."""
        return self.absolute.path if self.is_url else os.path.realpath(self.path)

    @property
    def shown(self) -> str:
        """The path as users see it, without secrets."""
        return shown(self.path)

    @property
    def name(self) -> str:
        """The last component of the path, as a file of this machine would have it: without the escapes of web servers.

        Escapes stay if without them it would not be one name.
        """
        name = os.path.basename(self.path)
        found = unquote(name, errors="surrogateescape") if self.speaks_http else name
        return name if "/" in found or "\0" in found or found in ("", ".", "..") else found

    def beneath(self, path: str) -> str:
        """The path of a file that data names relative to this directory: escaped where that is at a web server.

        Else `%41` would be another name for `A`, and what follows `?` or `#` would not be in the name.
        """
        return os.path.join(self.path, quote(os.fsencode(path)) if self.speaks_http else path)


def absolute_directory(path: str | os.PathLike[str]) -> str:
    """The absolute path of a directory whose files are named by others. Raises UsageError for the URL of a file."""
    place = Location.parse(path).absolute
    if place.is_url and ("?" in place.path or "#" in place.path or place.path in kept_queries()):
        raise UsageError("a directory's URL has no query and no fragment: name it without", path=place.path)
    return place.path


# The path, or the start of the URLs, that comes after the name of a URL.
_MOVED_URL = re.compile(r"(.+?://.+?)=(/.*|[a-zA-Z][a-zA-Z0-9+.-]+://.*)", re.DOTALL)


def parse_audio_root(text: str | os.PathLike[str]) -> tuple[str, str]:
    """The absolute path of a directory of audio; and of `NEW=OLD` OLD, with which lists name what is in NEW now, else
    "". An existing directory is no such pair. Raises UsageError for the URL of a file.
    """
    text = os.fspath(text)
    new, old = text, ""
    if Location.of(text).is_url:
        if match := _MOVED_URL.fullmatch(text):
            new, old = match.groups()
    elif not os.path.isdir(text):
        ends = (at for at, character in enumerate(text) if character == "=" and os.path.isdir(text[:at]))
        if (end := next(ends, None)) is not None:
            new, old = text[:end], text[end + 1 :]
    return absolute_directory(new), old.rstrip("/")


def beside(path: str, name: str) -> str:
    """The path of the file with a name in the directory of another. In a store, the name of that may end with a slash,
    which `os.path.dirname` takes off: `s3://bucket/a//x.tar` is in `s3://bucket/a/`.
    """
    return path[: len(path) - len(os.path.basename(path))] + name


def _without_ending(url: str) -> str:
    """The URL without its query, and without slashes at its end: with them it is the same data.

    Servers of HTTP may know a directory only with the slash.
    """
    url = keep_query(url)
    if (match := _SLASHES.fullmatch(url)) is None:
        return url
    os.environ[_SLASHES_VARIABLE] = json.dumps(_kept(_SLASHES_VARIABLE) | {match[1]: "/"})
    return match[1]


def keep_query(path: str) -> str:
    """The path without the query that an HTTP URL has."""
    # Only what looks like a URL is looked for on the disk: another path may be a mount that hangs.
    if (place := parse_in_archive(path)) is not None and not os.path.lexists(path):
        kept = InArchive(keep_query(place.archive), place.name)
        return path if kept == place else kept.chain
    match = _SIGNED.fullmatch(path)
    if match is None or os.path.lexists(path):
        return path
    scheme, url, query, rest = match.groups()
    url = scheme.lower() + url
    os.environ[_QUERIES_VARIABLE] = json.dumps(kept_queries() | {url: query})
    return url + rest


def kept_queries() -> dict[str, str]:
    """The queries that `keep_query` has kept, by URL."""
    return _kept(_QUERIES_VARIABLE)


def with_slash(url: str) -> str:
    """The URL with the slash that `absolute` has taken off it."""
    return url + _kept(_SLASHES_VARIABLE).get(url, "")


def _kept(variable: str) -> dict[str, str]:
    try:
        kept = json.loads(os.environ.get(variable, "{}"))
    except ValueError:
        kept = None
    if not isinstance(kept, dict) or not all(isinstance(ending, str) for ending in kept.values()):
        raise UsageError(f"${variable} is damaged: touchfs itself sets it, so unset it")
    return kept


def _problem(location: Location, url: str) -> str:
    if location.inside is not None and (place := parse_in_archive(url)) is not None:
        if parse_in_archive(place.archive) is not None or _CHAIN.search(place.archive):
            return "an archive in another one, or a longer chain of URLs, is not read: unpack the archive"
        if climbs(place.name):
            return "a name in an archive has no `..`"
        if not place.archive or "!" in place.archive:
            return "the archive has no name, or one with `!`, which is not read"
        Location.parse(place.archive)
        return ""
    if location.scheme in _ARCHIVES or _CHAIN.search(url):
        return "of chains of URLs only zip://NAME::ARCHIVE is read: unpack the archive, or name it alone"
    if location.scheme in _HOSTED and not _has_host(url):
        start = f"{location.scheme}://"
        return f"the URL has no host, or no number as its port: write {start}HOST/PATH or {start}HOST:PORT/PATH"
    if location.scheme in _LOCAL:
        return f"this is a local path: name it without {location.scheme}://"
    if USER.search(url):
        return (
            "a URL must not hold a user or a password, as others see it: set what its client reads from the "
            "environment or its own files"
        )
    return ""


def _has_host(url: str) -> bool:
    """True if the URL of a server names its host, and a port only by its number."""
    try:
        host = urlsplit(QUERY.sub("", url))
        return bool(host.hostname and (host.port is None or host.port))
    except ValueError:
        return False
