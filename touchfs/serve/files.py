"""Answers with the bytes of a file: as a whole, a range of it, or several ranges."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus

from touchfs.core.extent import Content
from touchfs.serve.answer import Headers, HttpAnswer, text
from touchfs.serve.ranges import Span, asked_ranges, is_listed

# So much is in memory for each client.
PIECE = 1 << 18


def answer_file(environ: Mapping[str, str], content: Content, etag: str, form: str, headers: Headers) -> HttpAnswer:
    """The answer to a GET of a content of this type. `headers` are those of every version that is sent."""
    headers = (("ETag", etag), ("Accept-Ranges", "bytes"), *headers)
    if "HTTP_IF_MATCH" in environ and not is_listed(etag, environ["HTTP_IF_MATCH"]):
        return text(HTTPStatus.PRECONDITION_FAILED, "the file is of another version")
    if "HTTP_IF_NONE_MATCH" in environ and is_listed(etag, environ["HTTP_IF_NONE_MATCH"]):
        return HttpAnswer(HTTPStatus.NOT_MODIFIED, headers)
    size = content.size
    spans = asked_ranges(environ, etag, size)
    if spans is None:
        return HttpAnswer(HTTPStatus.OK, (*headers, *_body_headers(form, size)), _pieces(content, 0, size))
    if not spans:
        within = ("Content-Range", f"bytes */{size}")
        return text(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, f"the file has {size} bytes", (within,))
    if len(spans) > 1:
        return _several(content, spans, form, headers)
    offset, length = spans[0]
    headers = (*headers, *_body_headers(form, length), ("Content-Range", _describe(spans[0], size)))
    return HttpAnswer(HTTPStatus.PARTIAL_CONTENT, headers, _pieces(content, offset, length))


def _several(content: Content, spans: list[Span], form: str, headers: Headers) -> HttpAnswer:
    # Not to be guessed: otherwise the bytes of a file could pretend to be a part.
    boundary = secrets.token_hex(16)
    heads = [
        f"\r\n--{boundary}\r\nContent-Type: {form}\r\nContent-Range: {_describe(span, content.size)}\r\n\r\n".encode()
        for span in spans
    ]
    end = f"\r\n--{boundary}--\r\n".encode()
    length = sum(map(len, heads)) + sum(length for _, length in spans) + len(end)

    def body() -> Iterator[bytes]:
        for head, span in zip(heads, spans, strict=True):
            yield head
            yield from _pieces(content, *span)
        yield end

    multipart = _body_headers(f"multipart/byteranges; boundary={boundary}", length)
    return HttpAnswer(HTTPStatus.PARTIAL_CONTENT, (*headers, *multipart), body())


def _body_headers(form: str, length: int) -> Headers:
    return ("Content-Type", form), ("Content-Length", str(length))


def _describe(span: Span, size: int) -> str:
    offset, length = span
    return f"bytes {offset}-{offset + length - 1}/{size}"


def _pieces(content: Content, offset: int, length: int) -> Iterable[bytes]:
    """The bytes of a range, of which at most one piece is in memory."""
    end = offset + length
    return (bytes(content.read(start, min(PIECE, end - start))) for start in range(offset, end, PIECE))
