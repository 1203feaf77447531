"""Paths of data that may be URLs: which are, their absolute forms, and how they are shown without secrets.

A URL names a client of fsspec and a path in it: `s3://bucket/shards`. `os.path.join` and `os.path.dirname` are right
for it, as its separator is `/`; what makes local paths absolute or resolves links would damage it.
"""

from __future__ import annotations

import json
import os
import re
from urllib.parse import quote, unquote, urlsplit

from touchfs.errors import UsageError
from touchfs.posix.paths.chains import InArchive, parse_in_archive

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
_LOCAL = frozenset({"file", "local"})
# What follows the scheme is a host, perhaps with a port.
_HOSTED = frozenset({"http", "https", "sftp", "ssh"})
# fsspec reads what is in an archive, or through a cache of its own, by chains. We read those that `.chains` parses.
_ARCHIVES = frozenset({"zip", "tar", "libarchive"})
_CHAIN = re.compile(r"::[a-zA-Z][a-zA-Z0-9+.-]*://")
# User information before the host, and what follows the path: a signature or a token may be in either.
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_QUERY = re.compile(r"[?#][^\s]*")
# The query of a URL ends at a colon, which begins a path in the dataset: signatures have `%3A`.
_SIGNED = re.compile(r"(https?://[^?\s]+)\?([^:\s]*)(.*)", re.DOTALL | re.IGNORECASE)
# In a message: a URL, and a query whose URL was cut off.
_IN_TEXT = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://[^\s'\"]+")
_LOOSE_QUERY = re.compile(r"\?[^\s'\"]*=[^\s'\"]*")
# A URL that ends with slashes, but does not consist of its scheme alone.
_SLASHES = re.compile(r"(.+://.*[^/])/+", re.DOTALL)
_QUERIES_VARIABLE, _SLASHES_VARIABLE = "TOUCHFS_URL_QUERIES", "TOUCHFS_URL_SLASHES"


def is_url(path: str) -> bool:
    """True if a path names data of another store. An existing local file of that name comes first."""
    return "://" in path and _SCHEME.match(path) is not None and not os.path.lexists(path)


def absolute(path: str) -> str:
    """The absolute path of data. A URL is one, with a scheme of small letters and no slash at its end: it is the same
    data. See `keep_query` about its query. What is in an archive gets the form that names can be joined to.

    Servers of HTTP may know a directory only with the slash, so requests for the URL have it again.
    """
    if not is_url(path):
        return os.path.abspath(path)
    if (place := parse_in_archive(path)) is not None:
        return InArchive(absolute(place.archive), place.name).path
    url = with_small_scheme(keep_query(path))
    if (match := _SLASHES.fullmatch(url)) is None:
        return url
    os.environ[_SLASHES_VARIABLE] = json.dumps(_kept(_SLASHES_VARIABLE) | {match[1]: "/"})
    return match[1]


def joinable(path: str) -> str:
    """The path, in a form that names can be joined to: a chain of URLs is `absolute`, others are as they are."""
    return path if parse_in_archive(path) is None or not is_url(path) else absolute(path)


def with_small_scheme(url: str) -> str:
    """The URL with its scheme in small letters: `HTTP://host` is `http://host` (RFC 3986, section 3.1)."""
    scheme, separator, rest = url.partition("://")
    return scheme.lower() + separator + rest


def speaks_http(path: str) -> bool:
    """True if a path is the URL of a file of a web server. In such URLs, and in no others, names have escapes."""
    return path.partition("://")[0].lower() in ("http", "https") and is_url(path)


def beside(path: str, name: str) -> str:
    """The path of the file with a name in the directory of another. In a store, the name of that may end with a slash,
    which `os.path.dirname` takes off: `s3://bucket/a//x.tar` is in `s3://bucket/a/`.
    """
    return path[: len(path) - len(os.path.basename(path))] + name


def beneath(directory: str, path: str) -> str:
    """The path of a file that data names relative to a directory: escaped where that is at a web server.

    Else `%41` would be another name for `A`, and what follows `?` or `#` would not be in the name.
    """
    return os.path.join(directory, quote(os.fsencode(path)) if speaks_http(directory) else path)


def shown_name(path: str) -> str:
    """The last component of a path, as a file of this machine would have it: without the escapes of web servers.

    Escapes stay if without them it would not be one name.
    """
    name = os.path.basename(path)
    if not speaks_http(path):
        return name
    found = unquote(name, errors="surrogateescape")
    return name if "/" in found or "\0" in found or found in ("", ".", "..") else found


def resolved(path: str) -> str:
    """The absolute path of data with all links resolved. A URL has none."""
    return absolute(path) if is_url(path) else os.path.realpath(path)


def absolute_directory(path: str) -> str:
    """As `absolute`, of a directory whose files are named by others. Raises UsageError for a URL that is none."""
    place = absolute(path)
    if is_url(place):
        check_url(place)
        if "?" in place or "#" in place or place in kept_queries():
            raise UsageError("a directory's URL has no query and no fragment: name it without", path=shown(place))
    return place


def climbs(path: str) -> bool:
    """True if a path in a URL may lead out of its directory: has a step `..`, also one with escapes, as `%2e%2e`.

    Clients of HTTP decode the escapes of dots, and then remove the step.
    """
    return ".." in re.split(r"[/\\]", unquote(path))


def check_url(url: str) -> None:
    """Raise UsageError if a URL names local files or an archive in an archive, or holds a user or a password."""
    if (place := parse_in_archive(url)) is not None and not os.path.lexists(url):
        _check_in_archive(place, url)
        return
    match = _SCHEME.match(url)
    scheme = "" if match is None else match[1].lower()
    if (scheme in _ARCHIVES or _CHAIN.search(url)) and not os.path.lexists(url):
        raise UsageError(
            "of chains of URLs only zip://NAME::ARCHIVE is read: unpack the archive, or name it alone",
            path=without_secrets(url),
        )
    if scheme in _HOSTED:
        _check_host(scheme, url)
    if match is not None and scheme in _LOCAL:
        raise UsageError(f"this is a local path: name it without {match[0]}", path=shown(url))
    if _USER.search(url):
        raise UsageError(
            "a URL must not hold a user or a password, as others see it: set what its client reads from the "
            "environment or its own files",
            path=shown(url),
        )


def _check_in_archive(place: InArchive, url: str) -> None:
    if parse_in_archive(place.archive) is not None or _CHAIN.search(place.archive):
        message = "an archive in another one, or a longer chain of URLs, is not read: unpack the archive"
        raise UsageError(message, path=without_secrets(url))
    if climbs(place.name):
        raise UsageError("a name in an archive has no `..`", path=without_secrets(url))
    if not place.archive or "!" in place.archive:
        raise UsageError("the archive has no name, or one with `!`, which is not read", path=without_secrets(url))
    if is_url(place.archive):
        check_url(place.archive)


def _check_host(scheme: str, url: str) -> None:
    """Raise UsageError if a URL of a server names none, or a port that is none."""
    try:
        host = urlsplit(_QUERY.sub("", url))
        has_host = bool(host.hostname and (host.port is None or host.port))
    except ValueError:
        has_host = False
    if not has_host:
        raise UsageError(
            f"the URL has no host, or no number as its port: write {scheme}://HOST/PATH or {scheme}://HOST:PORT/PATH",
            path=shown(url),
        )


def keep_query(path: str) -> str:
    """The path without the query that an HTTP URL has. Requests for the URL have it again (`source/remote/clients.py`).

    It may be a signature, which must not get into names, logs and catalogs, and which is another one tomorrow. It is in
    the environment, where only the user's own processes see it.
    """
    # Only what looks like a URL is looked for on the disk: another path may be a mount that hangs.
    if (place := parse_in_archive(path)) is not None and not os.path.lexists(path):
        kept = InArchive(keep_query(place.archive), place.name)
        return path if kept == place else kept.chain
    match = _SIGNED.fullmatch(path)
    if match is None or os.path.lexists(path):
        return path
    url, query, rest = match.groups()
    url = with_small_scheme(url)
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


def without_secrets(text: str) -> str:
    """A message of a library without the users and queries of the URLs in it, and of parts of URLs."""
    return _LOOSE_QUERY.sub("?…", _IN_TEXT.sub(lambda url: shown(url[0]), text))


def shown(url: str) -> str:
    """The URL as it may be shown, logged and stored: without user, password, query and fragment."""
    if not _SCHEME.match(url):
        return url
    if (place := parse_in_archive(url)) is not None:
        return InArchive(shown(place.archive), place.name).chain
    return _QUERY.sub("", _USER.sub("", url))
