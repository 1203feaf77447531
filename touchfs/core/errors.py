"""Errors of touchfs: one class for each action that a person can take.

    TouchfsError
    ├── UsageError        a command, option or value is wrong: change it
    │   ├── ExistsError   an iterator of that name exists
    │   ├── ArgumentValueError, ArgumentTypeError   also a ValueError, a TypeError
    │   └── OutputExistsError, UnsupportedModeError   also a FileExistsError, a NotImplementedError
    ├── NotFoundError     no such source, path, sample or field
    │   └── MissingFileError   also a FileNotFoundError
    ├── FormatError       a file is damaged, or not what it claims to be: repair it or make it again
    │   ├── DecodeLimitError  or its decoder was stopped: try again, or allow it more time (`--decode-timeout`)
    │   ├── CacheFormatError, CorruptVideoError, FieldTypeError   also a ValueError, a RuntimeError, a TypeError
    │   └── ColumnValueError, MissingColumnError   also a ValueError, a KeyError
    ├── ChangedError      a file is no longer the one that was indexed or opened: index again, mount again
    ├── SourceError       the bytes cannot be read now: permissions, disk, network
    │   ├── NoAnswerError     no host of that name, or nobody serves there
    │   │   └── SourceTimeoutError
    │   ├── NotIndexedError   shards are not indexed yet: wait, or index them (`touchfs index`)
    │   ├── MaterializeError  bytes of items cannot be read: also a RuntimeError
    │   ├── LocationError     data names a place that nobody allowed: `--allow-location` allows it
    │   ├── UntrustedError    somebody else may have written a file of ours: remove it, or trust them (`--trust`)
    │   └── UnwritableError   we may not write there: get the permission, or name another place
    ├── StateError        the state store cannot be used: name another directory for it
    │   └── FullError     the store or its disk is full: remove something
    ├── LostWorkerError   a process that worked for us died: try again
    │   └── LostTaskError  those that worked at one task
    ├── MissingExtraError an optional package is not installed: install it
    └── MountError        the mount cannot be made or undone; carries the exit status of `touchfs mount`

Every error carries its location as far as it is known: `path`, the byte `offset` in it, the sample's `key`. Of a URL,
`path` has no secrets. `str()` of an error is one line for a person. `map_os_errors` turns the operating system's errors
into these, and `errno_of` is the way back. `WouldWaitError` is for callers that must not wait: they ask a thread
instead.
"""

from __future__ import annotations

import errno

from touchfs.core.control_characters import one_line, quote_name
from touchfs.core.urls import shown


class TouchfsError(Exception):
    """Base class of all errors that touchfs raises deliberately."""

    def __init__(
        self, message: str, *, path: str | None = None, offset: int | None = None, key: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else shown(path)
        self.offset = offset
        self.key = key

    def __str__(self) -> str:
        where = "" if self.path is None else f"{self.path}: "
        place = "" if self.offset is None else f" (at byte {self.offset})"
        sample = "" if self.key is None else f" (sample '{quote_name(self.key)}')"
        return one_line(where + self.message + place + sample)

    def at(self, path: str) -> TouchfsError:
        """Set the path if it is not set, and return the error. Codecs know offsets but no paths; their callers do."""
        if self.path is None:
            self.path = shown(path)
        return self

    def of(self, key: str) -> TouchfsError:
        """Set the key if it is not set, and return the error. What decodes data does not know whose it is."""
        if self.key is None:
            self.key = key
        return self


class UsageError(TouchfsError):
    """A command, option or value is wrong."""


class ExistsError(UsageError):
    """An iterator of that name exists."""


class ArgumentValueError(UsageError, ValueError):
    """An argument has a wrong value."""


class ArgumentTypeError(UsageError, TypeError):
    """An argument has a wrong type."""


class OutputExistsError(UsageError, FileExistsError):
    """The output exists, and may not be replaced."""


class UnsupportedModeError(UsageError, NotImplementedError):
    """Output cannot be written in this mode."""


class NotFoundError(TouchfsError):
    """No such source, path, sample or field."""


class MissingFileError(NotFoundError, FileNotFoundError):
    """No such file."""


class FormatError(TouchfsError):
    """A file is damaged, or not what it claims to be."""


class CacheFormatError(FormatError, ValueError):
    """A cache is damaged, of another version, or not the one that is wanted: rebuild it."""


class DecodeLimitError(FormatError):
    """A decoder crashed, or took more time or memory than its limit: the next time it may not."""


class CorruptVideoError(FormatError, RuntimeError):
    """A video cannot be decoded."""


class FieldTypeError(FormatError, TypeError):
    """A field of a JSON object has a wrong type."""


class ColumnValueError(FormatError, ValueError):
    """A column of a table has a value that it must not have."""


class MissingColumnError(FormatError, KeyError):
    """A table lacks a column that it must have."""


class ChangedError(TouchfsError):
    """A file is no longer the one that was indexed or opened."""


class SourceError(TouchfsError):
    """The bytes cannot be read now."""


class NoAnswerError(SourceError):
    """The store of the data does not answer, so nothing else in it has to be asked for."""


class SourceTimeoutError(NoAnswerError):
    """The read timed out."""


class NotIndexedError(SourceError):
    """Shards are not indexed yet."""


class MaterializeError(SourceError, RuntimeError):
    """The bytes of some items cannot be read."""


class LocationError(SourceError):
    """Data names a place that nobody allowed."""


class UntrustedError(SourceError):
    """Somebody whom we do not trust may have written a file of our own."""


class UnwritableError(SourceError):
    """We may not write here."""


class LostWorkerError(TouchfsError):
    """A process that worked for us died."""


class LostTaskError(LostWorkerError):
    """The processes that worked at one task died; others go on."""


class StateError(TouchfsError):
    """The state store cannot be used."""


class FullError(StateError):
    """The state store or its disk is full."""


class MissingExtraError(TouchfsError):
    """An optional package is not installed."""


class MountError(TouchfsError):
    """The mount cannot be made or undone. `exit_status` is that of `touchfs mount`."""

    def __init__(self, message: str, *, path: str | None = None, exit_status: int = 1) -> None:
        super().__init__(message, path=path)
        self.exit_status = exit_status


class WouldWaitError(Exception):
    """The operation would wait for a transaction of another thread or process, or for the disk."""


# The first matching class counts, so a subclass comes before its base class.
_ERRNOS: tuple[tuple[type[TouchfsError], int], ...] = (
    (NotFoundError, errno.ENOENT),
    (ChangedError, errno.ESTALE),
    (FormatError, errno.EIO),
    (SourceTimeoutError, errno.ETIMEDOUT),
    (NotIndexedError, errno.EAGAIN),
    (SourceError, errno.EIO),
    (FullError, errno.ENOSPC),
    (StateError, errno.EIO),
    (ExistsError, errno.EEXIST),
    (UsageError, errno.EINVAL),
)


def errno_of(error: TouchfsError) -> int:
    """The errno of an error; EIO for other classes."""
    return next((number for kind, number in _ERRNOS if isinstance(error, kind)), errno.EIO)


# What the system may be short of for a moment: processes, threads, descriptors and memory.
_SHORTAGES = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# What `threading` raises, in all versions of Python.
_NO_THREAD = "can't start new thread"


def shortage_of(error: BaseException) -> int | None:
    """The errno for a reader, of an error that is nobody's fault and may be gone in a moment; None for any other one.

    It is never EAGAIN: a program would take the file for one that never waits.
    """
    match error:
        case MemoryError():
            return errno.ENOMEM
        case OSError(errno=number) if number in _SHORTAGES:
            return errno.ENOMEM if number == errno.EAGAIN else number
        case RuntimeError() if str(error) == _NO_THREAD:
            return errno.ENOMEM
        case BaseExceptionGroup():
            found = [shortage_of(each) for each in error.exceptions]
            return found[0] if all(found) else None
    return None


class map_os_errors:
    """Raise the `os_error` of an OSError in the block.

    Not a generator: from Python 3.13 on, an error and the frame of a generator that raised from it keep each other, and
    all that the callers hold, until the garbage collector comes. A `with` costs 0.4 µs, so the hottest reads do
    without.
    """

    __slots__ = ("_path", "_problem")

    def __init__(self, path: str, problem: str = "") -> None:
        self._path = path
        self._problem = problem

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, TouchfsError):
            raise os_error(error, self._path, self._problem) from error


def os_error(error: OSError, path: str, problem: str = "", *, offset: int | None = None) -> NotFoundError | SourceError:
    """Our error for an OSError from reading `path`: NotFoundError if nothing is there, else SourceError.

    The message of a SourceError is the system's, after `problem` if that is given.
    """
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return NotFoundError("no such file or directory", path=path)
    reason = error.strerror or str(error)
    return SourceError(f"{problem}: {reason}" if problem else reason, path=path, offset=offset)
