"""From our errors to errnos: the only place where that is decided."""

from __future__ import annotations

import errno

from touchfs.errors import (
    ChangedError,
    FormatError,
    FullError,
    NotFoundError,
    SourceError,
    SourceTimeoutError,
    StateError,
    TouchfsError,
    UsageError,
)
from touchfs.iterators.registry import ExistsError

# The first class that fits counts, so a subclass stands before its base.
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
    return next((number for kind, number in _ERRNOS if isinstance(error, kind)), errno.EIO)
