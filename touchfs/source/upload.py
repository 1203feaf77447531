"""Write complete files to stores, each in one step: a reader sees the old one or the new one.

A store of objects shows an object once all of it has arrived. Where a name is seen before its bytes are there, the file
is sent under another name and renamed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, BinaryIO, cast

from touchfs.core.errors import SourceError, TouchfsError, UsageError, map_os_errors
from touchfs.core.location import Location
from touchfs.posix.atomic import TEMPORARY_PREFIX, atomic_file, write_error

_OBJECTS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "memory"})
# A client may have a method for a request that no such server is known to answer. Ours for SFTP only reads.
_READ_ONLY = frozenset({"http", "https", "hf", "sftp", "ssh"})
# A large file takes longer than a read. A slower connection needs a larger --timeout.
_BYTES_PER_SECOND = 1_000_000


def check_writable(target: str) -> Location:
    """The location of a path. Raises UsageError if nothing can be written to its store."""
    location = Location.of(target)
    if location.inside is not None or location.scheme in _READ_ONLY or (location.is_url and "::" in target):
        raise UsageError(f"nothing is written to {location.scheme}://: take s3, gs, az or a directory", path=target)
    return location


@contextmanager
def new_file(target: str) -> Iterator[BinaryIO]:
    """Open a new file for writing that appears at a path or URL on success; an exception discards it.

    Raises UsageError, UnwritableError or SourceError.
    """
    if not check_writable(target).is_url:
        with atomic_file(target) as file:
            yield file
        return
    with tempfile.NamedTemporaryFile() as copy:
        yield cast(BinaryIO, copy)
        copy.flush()
        _put(copy.name, target)


def upload(file: str, target: str) -> None:
    """Copy a file of ours to a path or URL, whose directories are made if the store has any.

    Raises UsageError or SourceError.
    """
    if check_writable(target).is_url:
        _put(file, target)
        return
    try:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
    except OSError as error:
        raise write_error(error, f"cannot create the directory: {error.strerror}", os.path.dirname(target)) from error
    with open(file, "rb") as source, atomic_file(target) as copy:
        shutil.copyfileobj(source, copy)


def remove(target: str) -> None:
    """Remove a file. Raises NotFoundError or SourceError."""
    if not Location.of(target).is_url:
        with map_os_errors(target):
            os.unlink(target)
        return
    with _converted_errors(target, "cannot be removed"):
        client, path = _client(target)
        _in_time(target, 0, client.rm_file, path)


def _put(file: str, target: str) -> None:
    with _converted_errors(target, "cannot be written"):
        client, path = _client(target)
        if Location.of(target).scheme in _OBJECTS:
            _in_time(target, os.path.getsize(file), client.put_file, file, path)
        else:
            _in_time(target, os.path.getsize(file), _put_and_rename, client, file, path)


def _put_and_rename(client: Any, file: str, path: str) -> None:
    directory = os.path.dirname(path)
    client.makedirs(directory, exist_ok=True)
    temporary = os.path.join(directory, TEMPORARY_PREFIX + secrets.token_hex(8))
    client.put_file(file, temporary)
    client.mv(temporary, path)


@contextmanager
def _converted_errors(target: str, what: str) -> Iterator[None]:
    """Convert what clients raise, each errors of its own, to SourceError."""
    from touchfs.source.remote.client_errors import reason_of

    try:
        yield
    except TouchfsError:
        raise
    except Exception as error:
        raise SourceError(f"{what}: {reason_of(error)}", path=target) from error


def _in_time(target: str, size: int, function: Callable[..., object], *arguments: Any) -> None:
    """Call a function of a client that sends `size` bytes. Raises what it raises, and SourceTimeoutError if it takes
    longer than a read may, besides the time for the bytes.
    """
    from touchfs.source.remote.calls import begin, deadline_from_now, in_thread, timeout_error

    deadline = deadline_from_now() + size / _BYTES_PER_SECOND
    call = begin(in_thread(function, *arguments))
    try:
        call.result(deadline - monotonic())
    except TimeoutError as error:
        raise timeout_error(target) from error


def _client(target: str) -> tuple[Any, str]:
    from touchfs.source.remote.clients import resolve  # most commands need none

    return resolve(target)
