"""The daemon's log: its file, its level, and the format of its lines.

A mount in the background logs to a file named after its mount point, one in the foreground to stderr; a file given by
the user overrides both. journald adds time and process itself, and expects the priority of a line as a prefix (`<4>`,
sd-daemon(3)), so lines for it are short.
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
    """`file` is an absolute path, or None for stderr. `is_ours` is false if the user has given the file."""

    level: str = "info"
    file: str | None = None
    is_ours: bool = False


DEFAULT = LogOptions()


def configure(options: LogOptions) -> None:
    """Configure logging. Raises MountError if the file cannot be written."""
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
    """Open a log file to append whole lines. A file of ours is not opened through a link. Raises MountError."""
    path = options.file or os.devnull
    try:
        opened = open_for_update(path, os.O_WRONLY | os.O_APPEND) if options.is_ours else path
        return open(opened, "a", encoding="utf-8", errors="backslashreplace")
    except UntrustedError as error:
        raise MountError(f"the log cannot be written: {error.message}; see --log-file", path=error.path) from error
    except OSError as error:
        raise MountError(f"the log cannot be written: {error.strerror}; see --log-file", path=path) from error


class _JournalHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """Prefixes each line with the priority: to journald each line of a traceback is an entry of its own."""

    def format(self, record: logging.LogRecord) -> str:
        before = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return before + super().format(record).replace("\n", "\n" + before)


def _is_journal(descriptor: int) -> bool:
    """True if a descriptor is the stream to the journal: $JOURNAL_STREAM has its device and inode, systemd.exec(5)."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
