"""The level of a mount's log, which can be changed while it runs (`.touchfs/log-level`).

It is in memory that all processes of the mount share, and a filter of the log's handler looks at it for each record. So
a change takes effect at once in every process, also in one that is forked later.
"""

from __future__ import annotations

import logging

from touchfs.core.errors import UsageError
from touchfs.posix.memory.shared import shared_cells

# The names of our loggers, and that of the root, by which code may log before any name is known.
_OURS = ("touchfs", "root")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class LogLevel:
    """Created before the first fork. `filter` is one for a `logging.Handler`."""

    def __init__(self, name: str) -> None:
        (self._cell,) = shared_cells(1)
        self.name = name

    @property
    def name(self) -> str:
        """One of `LEVELS`. Setting another one raises UsageError."""
        return next(name for name, level in LEVELS.items() if level == self._cell[0])

    @name.setter
    def name(self, name: str) -> None:
        if name not in LEVELS:
            raise UsageError(f"{name[:20]!r} is no level of the log: write one of {', '.join(LEVELS)}")
        self._cell[0] = LEVELS[name]

    def filter(self, record: logging.LogRecord) -> bool:
        """True if a record is to be logged. Other libraries log what they are told, so only their warnings are."""
        least = self._cell[0] if record.name.startswith(_OURS) else max(self._cell[0], logging.WARNING)
        return record.levelno >= least
