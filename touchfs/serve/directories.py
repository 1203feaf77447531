"""Listings of directories, as HTML for people and as JSON for programs. They are sent while they are made."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from html import escape
from http import HTTPStatus
from itertools import islice

from touchfs.core.control_characters import one_line
from touchfs.serve.answer import HttpAnswer
from touchfs.serve.served_tree import Served

# Entries that are sent at once.
BATCH = 256


def batched(texts: Iterator[str]) -> Iterator[bytes]:
    """The texts as UTF-8, some of them in each piece."""
    while batch := list(islice(texts, BATCH)):
        yield "".join(batch).encode()


def answer_listing(directory: Served, children: Iterable[Served], accept: str) -> HttpAnswer:
    """The listing of a directory, as JSON if the header `Accept` begins with that."""
    if accept.startswith("application/json"):
        form, lines = "application/json", _json(children)
    else:
        form, lines = "text/html; charset=utf-8", _html(directory, children)
    return HttpAnswer(HTTPStatus.OK, (("Content-Type", form), ("Vary", "Accept")), batched(lines))


def _html(directory: Served, children: Iterable[Served]) -> Iterator[str]:
    title = _shown(b"/" + b"/".join(directory.names))
    yield f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{title}</title></head>\n'
    yield f"<body><h1>{title}</h1>\n<pre>\n"
    if directory.names:
        yield '<a href="../">../</a>\n'
    for child in children:
        slash = "/" * child.is_directory
        size = "" if child.size is None else f"  {child.size}"
        yield f'<a href="{child.url}">{_shown(child.names[-1])}{slash}</a>{size}\n'
    yield "</pre></body></html>\n"


def _json(children: Iterable[Served]) -> Iterator[str]:
    """An array of objects, one on a line."""
    before = "["
    for child in children:
        row = {
            "name": os.fsdecode(child.names[-1]),
            "type": "directory" if child.is_directory else "file",
            "size": child.size,
            "mtime_ns": child.mtime_ns,
            "url": child.url,
        }
        yield f"{before}\n{json.dumps(row)}"
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"


def _shown(name: bytes) -> str:
    return escape(one_line(os.fsdecode(name)))
