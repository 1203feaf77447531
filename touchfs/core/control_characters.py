"""Quote names and texts of data where a person or a program reads them line by line.

A name may hold anything. What could end a line, send a command to a terminal or change how a line reads is written as
in a string of JSON: `\\n`, `\\u001b`, `\\u202e`. So a line of JSON keeps its meaning. Python takes a byte that is not
UTF-8 for a lone surrogate, U+DC80 to U+DCFF, so it is written as `\\udcff`. All other characters stay as they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from types import TracebackType

_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
# For the brackets of a regular expression: control characters of ASCII and Latin-1, the other line ends of Python and
# JavaScript with the embeddings and overrides of directions after them, the isolates of directions.
CONTROL = "\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
# These and lone surrogates, which no UTF-8 has.
UNSAFE = f"{CONTROL}\ud800-\udfff"
_CONTROL = re.compile(f"[{CONTROL}]")
_UNSAFE = re.compile(f"[{UNSAFE}]")
# A backslash that would seem to begin an escape, or stands before one.
_BACKSLASH = re.compile(rf"\\(?=[\\nrtu{UNSAFE}])")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def has_control(text: str) -> bool:
    """Return whether a text would break a line or a terminal. Bytes that are not UTF-8 do not."""
    return _CONTROL.search(text) is not None


def one_line(text: str) -> str:
    """Return a text of ours, with names of data in it, as one line. What is one stays as it is."""
    return _UNSAFE.sub(_escape, text)


def quote_name(name: str) -> str:
    """Return a name as it stands in a list of names: different names stay different."""
    return one_line(_BACKSLASH.sub(r"\\\\", name))


def _escape(match: re.Match[str]) -> str:
    return _SHORT.get(match[0]) or f"\\u{ord(match[0]):04x}"


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
