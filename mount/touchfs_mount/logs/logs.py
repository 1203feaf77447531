"""The daemon's log: its place, its level, and the format of its lines.

A mount in the background logs to the journal if there is one, and else to a file named after its mount point; a mount
in the foreground logs to stderr. A file given by the user overrides both. journald adds time and process itself, and
expects the priority of a line as a prefix, so lines for it are short.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

from touchfs.core.control_characters import LineFormatter
from touchfs.core.errors import MountError, UntrustedError
from touchfs.core.urls import without_secrets
from touchfs.posix.trust import open_for_update, open_named
from touchfs_mount.logs import journal
from touchfs_mount.logs.handlers import JournalHandler, LogFileHandler, PriorityHandler
from touchfs_mount.numbers.log_level import LogLevel

FILE_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"
STDERR_FORMAT = "%(levelname)s %(message)s"
JOURNAL_FORMAT = "%(name)s: %(message)s"
_TAIL = 4096


@dataclass(frozen=True, slots=True)
class LogOptions:
    """`file` is an absolute path, and `identifier` the name of our entries in the journal. Without both the log goes to
    stderr. `is_ours` is false if the user has given the file.
    """

    level: str = "info"
    file: str | None = None
    is_ours: bool = False
    identifier: str | None = None

    @property
    def place(self) -> str | None:
        """The path of the log, or the command that shows it. None for stderr."""
        return self.file if self.identifier is None else journal.reading_command(self.identifier)


DEFAULT = LogOptions()


def configure(options: LogOptions, level: LogLevel) -> None:
    """Configure logging at a level that may change. Raises MountError if the log cannot be written."""
    handler: logging.Handler
    if options.identifier is not None:  # `Background.detach` has made it descriptor 2
        handler, form = JournalHandler(lambda: open_log(options), options.identifier), JOURNAL_FORMAT
    elif options.file is not None:
        handler, form = LogFileHandler(options.file, lambda: open_log(options)), FILE_FORMAT
    elif _is_journal(sys.stderr.fileno()):
        handler, form = PriorityHandler(sys.stderr), JOURNAL_FORMAT
    else:
        handler, form = logging.StreamHandler(sys.stderr), STDERR_FORMAT
    handler.setFormatter(LineFormatter(form, without_secrets))
    handler.addFilter(level.filter)
    logging.basicConfig(handlers=[handler], level=logging.DEBUG, force=True)


def reopen() -> None:
    """Open the log again, for example because its file was moved away. Other processes do so before their next line."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogFileHandler | JournalHandler):
            handler.acquire()
            try:
                handler.reopen()
            finally:
                handler.release()


def last_words() -> str:
    """Where the log of this process is, and its last line: for an error that only the log explains."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogFileHandler):
            with suppress(OSError), open(handler.path, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                lines = file.read().decode("utf-8", "replace").strip().splitlines()
                return f"the last line of its log {handler.path} is: {lines[-1] if lines else 'none'}"
        if isinstance(handler, JournalHandler):
            return f"its log says why: {handler.reading_command}"
    return "its log says why"


def open_log(options: LogOptions) -> TextIO:
    """Open the log file, or a stream to the journal, to append whole lines. Raises MountError, also for a file that
    somebody else may have put there.
    """
    path = options.file or os.devnull
    try:
        if options.identifier is not None:
            return open(journal.open_stream(options.identifier).detach(), "w", encoding="utf-8", errors="replace")
        open_file = open_for_update if options.is_ours else open_named
        return open(open_file(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8", errors="backslashreplace")
    except UntrustedError as error:
        raise MountError(f"the log cannot be written: {error.message}; see --log-file", path=error.path) from error
    except OSError as error:
        raise MountError(f"the log cannot be written: {error.strerror}; see --log-file", path=path) from error


def _is_journal(descriptor: int) -> bool:
    """True if a descriptor is the stream to the journal: $JOURNAL_STREAM has its device and inode, systemd.exec(5)."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
