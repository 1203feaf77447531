"""The mapping from our errors to errnos. No other module decides this."""

from __future__ import annotations

import errno

from touchfs.errors import (
    ChangedError,
    ExistsError,
    FormatError,
    FullError,
    NotFoundError,
    SourceError,
    SourceTimeoutError,
    StateError,
    TouchfsError,
    UsageError,
)

# The first matching class counts, so a subclass comes before its base class.
_ERRNOS: tuple[tuple[type[TouchfsError], int], ...] = (
    (NotFoundError, errno.ENOENT),
    (ChangedError, errno.ESTALE),
    (FormatError, errno.EIO),
    (SourceTimeoutError, errno.ETIMEDOUT),
    (SourceError, errno.EIO),
    (FullError, errno.ENOSPC),
    (StateError, errno.EIO),
    (ExistsError, errno.EEXIST),
    (UsageError, errno.EINVAL),
)


def errno_of(error: TouchfsError) -> int:
    """The errno of an error; EIO for other classes."""
    return next((number for kind, number in _ERRNOS if isinstance(error, kind)), errno.EIO)
