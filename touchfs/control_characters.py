"""Escape control characters in names, as they could break lists of lines or send commands to a terminal."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from types import TracebackType

_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
# The control characters of ASCII and Latin-1, and the other line ends of Python and JavaScript.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def has_control(text: str) -> bool:
    """Return whether a text contains a control character or a Unicode line separator."""
    return _CONTROL.search(text) is not None


def one_line(text: str) -> str:
    """Return the text with control characters escaped (`\\n`, `\\x1b`). Surrogate-escaped bytes stay unchanged."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


class LineFormatter(logging.Formatter):
    """A log formatter that writes a message on one line, and each line of a traceback on its own line.

    `clean` returns a line as it may be written: libraries log what they get.
    """

    def __init__(self, form: str, clean: Callable[[str], str] = lambda line: line) -> None:
        super().__init__(form)
        self._clean = clean

    def formatMessage(self, record: logging.LogRecord) -> str:  # the name that logging calls
        """Format the message, with control characters escaped."""
        return one_line(self._clean(super().formatMessage(record)))

    def formatException(self, ei: _ExceptionInfo) -> str:
        """Format the traceback, with control characters escaped in each line."""
        return "\n".join(one_line(self._clean(line)) for line in super().formatException(ei).split("\n"))
