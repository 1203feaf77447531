"""Find the version of a remote file in the dictionary with which a client of fsspec describes it.

The clients return dictionaries of their own keys. A version is an etag, or whatever else changes with the bytes, and
the size; of a store that has none of these, the size and the time of modification. A file with neither is another one
for each command and mount, as nobody could tell: what is made of it is not used again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import uuid4

from touchfs.core.errors import SourceError
from touchfs.core.urls import shown
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote import SESSION_VARIABLE
from touchfs.source.remote.storage_options import StorageOptions
from touchfs.source.store import FileType, Status

# Google's number of a version, which has an etag, too · s3fs, HTTP · adlfs · hashes of Hugging Face's files
_AZURE_ETAG = "etag"
_ETAGS = ("generation", "ETag", _AZURE_ETAG, "blob_id")
_TIMES = ("LastModified", "last_modified", "Last-Modified", "updated", "mtime", "modified", "created")
_DIRECTORY = "directory"
# Begins the etag of a file without a version; a name of the session follows, which processes inherit. No store's etag
# begins so, and no request has it as a condition.
_UNTOLD = "untold "


def status_of(info: Mapping[str, Any]) -> Status:
    """The status that a client's description means. Raises SourceError if it has no size."""
    # HTTP has no directories, but pages of links, whose URLs end with a slash: the one that was asked for, or the one
    # that the server redirects to.
    if info.get("type") == _DIRECTORY or shown(str(info.get("url", ""))).endswith("/"):
        return Status(FileType.DIRECTORY, Fingerprint(0, 0))
    size = info.get("size")
    if not isinstance(size, int):
        raise SourceError("the store does not tell its size", path=str(info.get("name", "")))
    etag = next((_with_quotes(name, str(info[name])) for name in _ETAGS if info.get(name)), None)
    modified = next((info[name] for name in _TIMES if info.get(name)), None)
    # The time is not looked at where there is an etag: copies of one version may have several.
    mtime_ns = 0 if etag is not None else _nanoseconds(modified)
    if etag is None and not mtime_ns and not StorageOptions.configured().immutable:
        etag = _UNTOLD + os.environ.setdefault(SESSION_VARIABLE, uuid4().hex)
    return Status(FileType.FILE, Fingerprint(size, mtime_ns, etag=etag))


def tells_version(fingerprint: Fingerprint) -> bool:
    """True if a remote file with this fingerprint has the same bytes tomorrow, as far as its store can tell."""
    return fingerprint.etag is None or not fingerprint.etag.startswith(_UNTOLD)


def _with_quotes(name: str, etag: str) -> str:
    """An etag as answers about single files have it, and conditions need it. Azure's listings leave out the quotes."""
    return f'"{etag}"' if name == _AZURE_ETAG and not etag.startswith(('"', "W/")) else etag


def _nanoseconds(time: object) -> int:
    """Nanoseconds since 1970; 0 if there is no time that can be read."""
    if isinstance(time, str):
        time = _parsed(time)
    if isinstance(time, datetime):
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return int(time * 1_000_000_000) if isinstance(time, int | float) else 0


def _parsed(text: str) -> datetime | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            return parse(text)
        except ValueError:
            continue
    return None
