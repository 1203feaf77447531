"""Control characters in names: they end a line of a list, or command a terminal, so neither gets them as they are."""

from __future__ import annotations

import logging
import re
from types import TracebackType

_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
# Those of ASCII and of Latin-1, and what else Python and JavaScript take for the end of a line.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def has_control(text: str) -> bool:
    return _CONTROL.search(text) is not None


def one_line(text: str) -> str:
    """The text with control characters spelled out (`\\n`, `\\x1b`). Bytes that are not UTF-8 stay what they are."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


class LineFormatter(logging.Formatter):
    """Has a message on one line, and a traceback on lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # as logging calls it
        return one_line(super().formatMessage(record))

    def formatException(self, ei: _ExceptionInfo) -> str:
        return "\n".join(map(one_line, super().formatException(ei).split("\n")))
