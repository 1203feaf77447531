"""The application behind the server (PEP 3333): each request gets its answer here.

Only reading is possible, and no request changes anything: `.touchfs` with its iterators is no part of a tree.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from itertools import chain
from typing import Any

from touchfs.core.control_characters import one_line
from touchfs.core.errors import FormatError, TouchfsError
from touchfs.core.token import State
from touchfs.serve.access import HttpAccess
from touchfs.serve.answer import HttpAnswer, Refusal, describe, refusal, text
from touchfs.serve.directories import answer_listing
from touchfs.serve.explorer import PLACE, Explorer, is_page
from touchfs.serve.files import answer_file
from touchfs.serve.propfind import BODY_MAX, answer_properties, parse_propfind, refuse_depth
from touchfs.serve.served_tree import Served, ServedTree
from touchfs.tree.tree import Tree

Environ = dict[str, Any]
# In an environment: a function that tells whether the client has gone away.
IS_GONE = "touchfs.is_gone"

_METHODS = ("GET", "HEAD", "OPTIONS", "PROPFIND")
# What data says is never run by a browser as a page of ours, nor shown in a page of another site.
_ALWAYS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "sandbox; default-src 'none'; img-src 'self'; media-src 'self'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "private, no-cache"),
)
_logger = logging.getLogger(__name__)


class Application:
    """Serves a tree to those who have access. Pages compare what `states` have seen, by name."""

    def __init__(self, tree: ServedTree, access: HttpAccess, states: Mapping[str, State] | None = None) -> None:
        self._served = tree
        self._access = access
        self.explorer = Explorer(tree, states or {})

    def close(self) -> None:
        """Begin to index no more shards."""
        self._served.close()

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> Iterable[bytes]:
        """Answer a request."""
        try:
            answer = self._answer(environ)
            if environ["REQUEST_METHOD"] == "HEAD":
                answer = answer._replace(body=())
            answer = _begun(answer, _shown_path(environ))
        except Refusal as refused:
            answer = refused.answer
        except TouchfsError as error:
            answer = describe(error)
            if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                _logger.error("%s: %s", _shown_path(environ), error)
        named = {name for name, _ in answer.headers}
        always = [each for each in _ALWAYS if each[0] not in named]
        start_response(f"{answer.status.value} {answer.status.phrase}", [*answer.headers, *always])
        return answer.body

    def _answer(self, environ: Environ) -> HttpAnswer:
        self._access.check(environ)
        method, body = environ["REQUEST_METHOD"], _body(environ)
        is_own = environ["PATH_INFO"].startswith(PLACE)  # no part of the tree, and nothing for WebDAV
        methods = _METHODS[:2] if is_own else _METHODS
        allowed = (("Allow", ", ".join(methods)),)
        if method not in methods:
            return text(HTTPStatus.METHOD_NOT_ALLOWED, "this server can only be read", allowed)
        if method == "OPTIONS":
            return HttpAnswer(HTTPStatus.OK, (("DAV", "1"), ("Content-Length", "0"), *allowed))
        if method == "PROPFIND":
            return self._properties(environ, body)
        if body:
            raise refusal(HTTPStatus.BAD_REQUEST, f"a {method} has no body")
        if is_page(environ):
            return self.explorer.answer(environ, environ[IS_GONE])
        tree = self._served.current()
        found = self._served.find(tree, _path(environ), environ[IS_GONE])
        return self._directory(tree, found, environ) if found.is_directory else self._file(tree, found, environ)

    def _directory(self, tree: Tree, found: Served, environ: Environ) -> HttpAnswer:
        if not environ["PATH_INFO"].endswith("/"):  # links in a listing are relative to it
            return text(HTTPStatus.MOVED_PERMANENTLY, "a directory ends with /", (("Location", found.url),))
        listed = self._served.children(tree, found, environ[IS_GONE])
        return answer_listing(found, listed, environ.get("HTTP_ACCEPT", ""))

    def _file(self, tree: Tree, found: Served, environ: Environ) -> HttpAnswer:
        content = self._served.open(tree, found)
        if environ["REQUEST_METHOD"] == "HEAD":
            environ.pop("HTTP_RANGE", None)
        return answer_file(environ, content, found.etag, found.type, (("Last-Modified", found.modified),))

    def _properties(self, environ: Environ, body: bytes) -> HttpAnswer:
        depth = environ.get("HTTP_DEPTH", "infinity").strip().lower()
        if depth == "infinity":
            return refuse_depth()
        if depth not in ("0", "1"):
            raise refusal(HTTPStatus.BAD_REQUEST, "Depth is neither 0 nor 1")
        try:
            requested = parse_propfind(body)
        except FormatError as error:
            raise refusal(HTTPStatus.BAD_REQUEST, error.message) from error
        tree = self._served.current()
        is_gone = environ[IS_GONE]
        found = self._served.find(tree, _path(environ), is_gone)
        below = self._served.children(tree, found, is_gone) if depth == "1" and found.is_directory else ()
        return answer_properties(requested, chain([found], below))


def _begun(answer: HttpAnswer, path: str) -> HttpAnswer:
    """The answer, with the first piece of its body made: an error before that has a status of its own."""
    pieces = iter(answer.body)
    first = next(pieces, None)
    return answer._replace(body=() if first is None else _chained(first, pieces, path))


def _chained(first: bytes, pieces: Iterator[bytes], path: str) -> Iterator[bytes]:
    yield first
    try:
        yield from pieces
    except TouchfsError as error:
        # The client sees that the body has an early end, as the connection is closed.
        _logger.error("%s: %s", path, error)
        raise ConnectionAbortedError(errno.ECONNABORTED, error.message) from error


def _shown_path(environ: Environ) -> str:
    return one_line(os.fsdecode(_path(environ)))


def _path(environ: Environ) -> bytes:
    path: str = environ["PATH_INFO"]
    return path.encode("latin-1")


def _body(environ: Environ) -> bytes:
    body: bytes = environ["wsgi.input"].read(BODY_MAX + 1)
    if len(body) > BODY_MAX:
        raise refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {BODY_MAX} bytes")
    return body
