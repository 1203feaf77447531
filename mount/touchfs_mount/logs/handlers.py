"""Handlers that write the daemon's log, in each of its processes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from touchfs.core.errors import MountError
from touchfs_mount.logs.journal import reading_command

# The priorities of syslog(3).
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


class LogFileHandler(logging.StreamHandler[TextIO]):
    """Writes to the file that is at `path`, whatever becomes of the one that it has open.

    Programs that rotate logs move the file away. Each process notices that before its next line, so all lines after the
    move are in the new file, and none is lost. Descriptor 2 follows, if it was the file.
    """

    def __init__(self, path: str, open_file: Callable[[], TextIO]) -> None:
        super().__init__(open_file())
        self.path = path
        self._open_file = open_file

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        self.reopen()
        super().emit(record)

    def reopen(self) -> None:
        """Open the file again if another or none is at the path. If that fails, the old one stays the log."""
        moved = _identity(self.stream.fileno())
        if moved == _identity(self.path):
            return
        with suppress(MountError):
            old, fresh = self.stream, self._open_file()
            if _identity(2) == moved:
                os.dup2(fresh.fileno(), 2)
            self.setStream(fresh)
            old.close()


class PriorityHandler(logging.StreamHandler[TextIO]):
    """Prefixes each line with its priority: to journald each line of a traceback is an entry of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the lines of a record."""
        before = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return before + super().format(record).replace("\n", "\n" + before)


class JournalHandler(PriorityHandler):
    """Writes to descriptor 2, a stream to the journal. Connects again when journald was restarted.

    `connect` opens a stream to the journal, or raises MountError. `identifier` is the name of our entries.
    """

    def __init__(self, connect: Callable[[], TextIO], identifier: str) -> None:
        super().__init__(sys.stderr)
        self.reading_command = reading_command(identifier)
        self._connect = connect

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
        try:
            _write_all(line)
        except OSError:
            self.reopen()
            with suppress(OSError):  # there is no journald, and nobody else to write to
                _write_all(line)

    def reopen(self) -> None:
        """Connect again. If that fails, the next line tries it, too."""
        with suppress(MountError), self._connect() as fresh:
            os.dup2(fresh.fileno(), 2)


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(2, data) :]


def _identity(file: int | str) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino
