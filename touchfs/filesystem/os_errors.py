"""Our errors as those of the operating system, which users of a filesystem expect."""

from __future__ import annotations

from touchfs.errors import TouchfsError, errno_of


def os_error_of(error: TouchfsError, path: str) -> OSError:
    """The OSError with the errno that a mount would give: FileNotFoundError, TimeoutError, or one of ESTALE or EIO."""
    return OSError(errno_of(error), error.message if error.path == path else str(error), path)
