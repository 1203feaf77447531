"""The answer to a request."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from touchfs.core.control_characters import one_line
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceTimeoutError, TouchfsError, UsageError

Headers = tuple[tuple[str, str], ...]

# The first class that fits counts.
_STATUS: dict[type[TouchfsError], HTTPStatus] = {
    NotFoundError: HTTPStatus.NOT_FOUND,
    UsageError: HTTPStatus.NOT_FOUND,
    ChangedError: HTTPStatus.GONE,
    FormatError: HTTPStatus.INTERNAL_SERVER_ERROR,
    SourceTimeoutError: HTTPStatus.GATEWAY_TIMEOUT,
    TouchfsError: HTTPStatus.SERVICE_UNAVAILABLE,
}


class HttpAnswer(NamedTuple):
    """Status, headers and body of an answer. A body whose length is no header is sent in chunks."""

    status: HTTPStatus
    headers: Headers = ()
    body: Iterable[bytes] = ()


class Refusal(Exception):
    """A request that gets no more than this answer."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(answer.status.phrase)
        self.answer = answer


def text(status: HTTPStatus, line: str, headers: Headers = (), form: str = "text/plain") -> HttpAnswer:
    """An answer of one line of text, or of another form, whose characters are those of UTF-8."""
    body = f"{one_line(line)}\n".encode()
    length = ("Content-Length", str(len(body)))
    return HttpAnswer(status, (("Content-Type", f"{form}; charset=utf-8"), length, *headers), [body])


def refusal(status: HTTPStatus, line: str, headers: Headers = ()) -> Refusal:
    """A refusal with one line of text."""
    return Refusal(text(status, line, headers))


def describe(error: TouchfsError) -> HttpAnswer:
    """The answer for an error: its message, without the paths of this machine."""
    return text(next(status for kind, status in _STATUS.items() if isinstance(error, kind)), error.message)
