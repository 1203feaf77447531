"""The daemon's log: in which file, from which level on, and how a line looks.

A mount in the background logs to a file that is named after its mount point, one in the foreground to stderr; a file
that the user names comes first in both. journald adds time and process itself, and wants the priority of a line in
front of it (`<4>`, sd-daemon(3)), so lines for it are short.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from typing import TextIO

from touchfs.control_characters import LineFormatter
from touchfs.errors import MountError, UntrustedError
from touchfs.posix.trust import open_for_update

FILE_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"
STDERR_FORMAT = "%(levelname)s %(message)s"
JOURNAL_FORMAT = "%(name)s: %(message)s"

# The priorities of syslog(3).
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """`file` is an absolute path, or None for stderr. `is_ours` when the user has not named it."""

    level: str = "info"
    file: str | None = None
    is_ours: bool = False


DEFAULT = LogOptions()


def configure(options: LogOptions) -> None:
    """Log from now on as the options say. Raises MountError if the file cannot be written."""
    handler: logging.Handler
    if options.file is not None:
        handler, form = logging.StreamHandler(open_file(options)), FILE_FORMAT
    elif _is_journal(sys.stderr.fileno()):
        handler, form = _JournalHandler(sys.stderr), JOURNAL_FORMAT
    else:
        handler, form = logging.StreamHandler(sys.stderr), STDERR_FORMAT
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(handlers=[handler], level=options.level.upper(), force=True)


def open_file(options: LogOptions) -> TextIO:
    """Open a log to append to it, whole lines at a time; one of ours, not through a link. Raises MountError."""
    path = options.file or os.devnull
    try:
        opened = open_for_update(path, os.O_WRONLY | os.O_APPEND) if options.is_ours else path
        return open(opened, "a", encoding="utf-8", errors="backslashreplace")
    except UntrustedError as error:
        raise MountError(f"the log cannot be written: {error.message}; see --log-file", path=error.path) from error
    except OSError as error:
        raise MountError(f"the log cannot be written: {error.strerror}; see --log-file", path=path) from error


class _JournalHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """Puts the priority before each line: journald takes each line of a traceback for an entry."""

    def format(self, record: logging.LogRecord) -> str:
        before = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return before + super().format(record).replace("\n", "\n" + before)


def _is_journal(descriptor: int) -> bool:
    """systemd names the device and inode of the stream to the journal: systemd.exec(5), $JOURNAL_STREAM."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
