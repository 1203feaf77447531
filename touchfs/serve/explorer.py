"""Pages for people: the URL of each, and its answer. All but the overview are below `/-/`, which no tree has.

They are made in the thread of their request. What takes long is elsewhere: statistics are counted in a thread of their
own, pictures are drawn by `Pictures`, and a filter has a third of a second, two at a time.
"""

from __future__ import annotations

import logging
import mimetypes
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from touchfs.core.control_characters import one_line
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError, UsageError
from touchfs.core.extent import Memory
from touchfs.core.token import State
from touchfs.explore.linked import OWN, ErrorList, ListQuery, OverviewPage, SampleList, SamplePage, json_of
from touchfs.explore.served import policy, served, static_files, static_place
from touchfs.pages.counted import CountedDataset
from touchfs.pages.linked import FRAMES, Asked, sample_at
from touchfs.pages.listing import sample_url
from touchfs.pages.problems import errors_from
from touchfs.select.selection import position_at
from touchfs.serve.answer import Headers, HttpAnswer, Refusal, refusal, text
from touchfs.serve.files import answer_file
from touchfs.serve.pictures import ENDINGS, SVG_POLICY, TYPES, WIDEST, WIDTHS, Pictures, parse_picture
from touchfs.serve.ranges import is_listed
from touchfs.serve.served_tree import ServedTree
from touchfs.serve.turns import RETRY_AFTER, Turns

PLACE = f"/{OWN}"
_LIST = "list"
# Whose samples have pages; `merged` with a plan.
_SOURCES = ("samples", "segments", "merged", "interleaved")
# The fields of a sample's URL that say of which list it is.
_OF_LISTS = ("in", "where", "sort", "seed", "ids", "but", "also", "at")
_FOREVER = ("Cache-Control", "private, max-age=31536000, immutable")
_POSITIONS = 1 << 62
# Searches at a time, and pages of samples, which read recordings for their loudness: more would only slow each other
# and all answers down, and take memory.
SEARCHES, SAMPLES, WAITING, WAIT_SECONDS = 2, 2, 32, 10.0
_TIMES = re.compile(r"([0-9]{1,9}(?:[.][0-9]{1,9})?),([0-9]{1,9}(?:[.][0-9]{1,9})?)")
_logger = logging.getLogger(__name__)


def is_page(environ: dict[str, Any]) -> bool:
    """True if a request is for a page: below `/-/`, or for the root by a program that names HTML, as browsers do."""
    path, accept = environ["PATH_INFO"], environ.get("HTTP_ACCEPT", "")
    if path != "/":
        return bool(path.startswith(PLACE))
    is_html = any(map(_is_html, accept.split(",")))
    return is_html and not accept.startswith("application/json") and environ["QUERY_STRING"] != _LIST


def _is_html(media: str) -> bool:
    """True for HTML in `Accept`, unless its weight is 0, which is a refusal."""
    name, *settings = ("".join(each.split()).lower() for each in media.split(";"))
    return name == "text/html" and not any(each.startswith("q=0") and not each[2:].strip("0.") for each in settings)


class Explorer:
    """The pages of a dataset, for any number of threads."""

    def __init__(self, tree: ServedTree, states: Mapping[str, State]) -> None:
        self._tree = tree
        self.pictures = Pictures(tree.dataset.limits)
        self._counted = CountedDataset(tree.dataset, states)
        self.searches = Turns("searches are under way", SEARCHES, WAITING, WAIT_SECONDS)
        self.samples = Turns("samples are being shown", SAMPLES, WAITING, WAIT_SECONDS)

    def answer(self, environ: dict[str, Any], is_gone: Callable[[], bool]) -> HttpAnswer:
        """The answer to a GET of a page. Raises Refusal, TouchfsError and ConnectionAbortedError."""
        try:
            return self._answer(environ, is_gone)
        except (Refusal, TouchfsError, ConnectionAbortedError):
            raise
        except Exception as error:  # a mistake of ours ends no connection
            _logger.error("a page cannot be made: %r", error, exc_info=_logger.isEnabledFor(logging.DEBUG))
            raise refusal(
                HTTPStatus.INTERNAL_SERVER_ERROR, "this page cannot be made: the log of the server says why"
            ) from error

    def _answer(self, environ: dict[str, Any], is_gone: Callable[[], bool]) -> HttpAnswer:
        path = os.fsdecode(environ["PATH_INFO"].encode("latin-1"))
        asked = {name: values[-1] for name, values in _query(environ["QUERY_STRING"]).items()}
        kind, _, rest = path.removeprefix(PLACE).partition("/")
        match kind:
            case "" if not rest:  # of `/`, and of `/-/`
                page: OverviewPage | SampleList | SamplePage | ErrorList = self._overview()
            case "static":
                return _static(environ, rest)
            case "samples" if not rest:
                page = self._list(asked, is_gone)
            case "sample" if not rest and "key" in asked:
                return self._by_key(asked["key"], is_gone)
            case "sample" if "/" in rest:
                shard, _, name = rest.partition("/")
                of = asked.get("of", "samples")
                if of.partition("/")[0] not in _SOURCES:
                    raise NotFoundError(f"of is one of {', '.join(_SOURCES)}")
                if of == "interleaved":
                    self._need_all(of, is_gone)
                self._tree.look_into(is_gone, "segments", shard)
                kept = {each: asked[each] for each in _OF_LISTS if each in asked}
                part = Asked(_number(asked, "segments"), _span(asked), kept)
                try:
                    with self.samples.turn():
                        page = sample_at(self._tree.current(), of, shard, name, self.pictures.pool, part)
                except UsageError as error:
                    raise refusal(HTTPStatus.BAD_REQUEST, error.message) from error
                if "at" in asked:
                    page = self._in_list(page, asked, is_gone)
            case "errors" if not rest:
                page = errors_from(self._counted.overview().shards, _number(asked, "from"))
            case _:
                if (picture := parse_picture(path.removeprefix(PLACE))) is not None:
                    return self._picture(environ, *picture, asked, is_gone)
                raise NotFoundError("there is no such page")
        root = "../" * (environ["PATH_INFO"].count("/") - 1) or "./"
        return self._document(environ, page, root)

    def _document(
        self, environ: dict[str, Any], page: OverviewPage | SampleList | SamplePage | ErrorList, root: str
    ) -> HttpAnswer:
        """A page as HTML, or as JSON if `Accept` begins with that. Its nonce is of this answer alone."""
        status = HTTPStatus.BAD_REQUEST if isinstance(page, SampleList) and page.problem else HTTPStatus.OK
        headers: Headers = (("Vary", "Accept"),)
        if environ.get("HTTP_ACCEPT", "").startswith("application/json"):
            form, body = "application/json", json_of(page).encode()
        else:
            nonce = secrets.token_urlsafe(18)
            form, body = "text/html; charset=utf-8", served(page, self._counted.title, root, nonce).encode()
            headers += (("Content-Security-Policy", policy(nonce)), ("Cross-Origin-Opener-Policy", "same-origin"))
        return HttpAnswer(status, (("Content-Type", form), ("Content-Length", str(len(body))), *headers), [body])

    def _overview(self) -> OverviewPage:
        page, is_counting = self._counted.page()
        broken = sum(bool(shard.reports) for shard in self._counted.overview().shards)
        return OverviewPage(page, self._counted.samples(), is_counting, broken)

    def _list(self, asked: dict[str, str], is_gone: Callable[[], bool]) -> SampleList:
        query = self._query(asked, "of", is_gone)
        try:
            with self.searches.turn() if query.where else nullcontext():
                return self._counted.samples(query, _number(asked, "from"), _number(asked, "known"))
        except UsageError as error:
            raise refusal(HTTPStatus.BAD_REQUEST, error.message) from error

    def _in_list(self, page: SamplePage, asked: dict[str, str], is_gone: Callable[[], bool]) -> SamplePage:
        """The page of a sample with links to those beside it in the list that it was opened from."""
        query, place = self._query(asked, "in", is_gone), _number(asked, "at")
        try:
            with self.searches.turn() if query.where else nullcontext():
                previous, following = self._counted.beside(query, place)
        except UsageError as error:
            raise refusal(HTTPStatus.BAD_REQUEST, error.message) from error
        return replace(page, previous=previous, following=following, list=query.url(place))

    def _query(self, asked: dict[str, str], name: str, is_gone: Callable[[], bool]) -> ListQuery:
        """Which list is asked for. The field with this name says what it is of."""
        of, ids = asked.get(name, "samples"), asked.get("ids", "")
        if of.partition("/")[0] == "interleaved":
            self._need_all("interleaved", is_gone)
        if ids:
            self._need_all("by-key", is_gone)
        where, sort = asked.get("where", "").strip(), asked.get("sort") or ("listed" if ids else "stored")
        others = (asked.get("but", ""), asked.get("also", "")) if ids else ()
        return ListQuery(of, where, sort, _number(asked, "seed"), ids, *others)

    def _need_all(self, view: str, is_gone: Callable[[], bool]) -> None:
        """Have what is known of all shards together. Raises Refusal if not all are indexed: no page does that."""
        dataset = self._tree.dataset
        if dataset.indexed_count < len(dataset.listed):
            self._counted.page()  # begins to index small datasets
        if dataset.indexed_count < len(dataset.listed):
            line = f"{view}/ is known once all shards are indexed: `touchfs index` indexes them"
            raise refusal(HTTPStatus.SERVICE_UNAVAILABLE, line, (RETRY_AFTER,))
        self._tree.look_into(is_gone, view)

    def _by_key(self, key: str, is_gone: Callable[[], bool]) -> HttpAnswer:
        """A redirect to the sample with a key, by the index of keys, which needs all shards."""
        self._need_all("by-key", is_gone)
        dataset = self._tree.dataset
        for holder in dataset.find(key):
            samples = self._counted.overview().samples
            shard = dataset.shard(holder.position).name
            position = samples.dataset.by_name[os.fsencode(shard)]
            url = sample_url(samples[position_at(samples, (position, holder.ordinal, 0))])
            return text(HTTPStatus.FOUND, "the sample is elsewhere", (("Location", url.removeprefix(OWN)),))
        raise NotFoundError("there is no sample with this key")

    def _picture(
        self, environ: dict[str, Any], kind: str, path: str, asked: dict[str, str], is_gone: Callable[[], bool]
    ) -> HttpAnswer:
        width = _number(asked, "w", WIDTHS[kind])
        if not 16 <= width <= WIDEST:
            raise refusal(HTTPStatus.BAD_REQUEST, f"w is from 16 to {WIDEST}")
        is_night, frame = kind == "spectrogram" and "night" in asked, _number(asked, "n")
        span = _span(asked) if kind in ("wave", "spectrogram") else None
        if frame >= len(FRAMES):
            raise refusal(HTTPStatus.BAD_REQUEST, f"n is from 0 to {len(FRAMES) - 1}")
        tree = self._tree.current()
        found = self._tree.find(tree, os.fsencode(path), is_gone)
        if found.is_directory:
            raise NotFoundError("a directory has no picture")
        etag = self.pictures.etag(found.etag, kind, width, span, frame, is_night)
        if "HTTP_IF_NONE_MATCH" in environ and is_listed(etag, environ["HTTP_IF_NONE_MATCH"]):
            return HttpAnswer(HTTPStatus.NOT_MODIFIED, (("ETag", etag),))
        content = self._tree.open(tree, found)
        name = os.path.basename(path)
        try:
            if kind == "frame":
                data = self.pictures.frame(content, found.etag, frame, len(FRAMES), width)
            else:
                data = self.pictures.picture(kind, content, name, found.etag, width, span, is_night=is_night)
        except UsageError as error:
            if span is None:
                raise
            raise refusal(HTTPStatus.BAD_REQUEST, error.message) from error
        except FormatError as error:  # the file is damaged, not the server
            raise refusal(HTTPStatus.UNPROCESSABLE_ENTITY, error.message) from error
        ending = ENDINGS[kind]
        return answer_file(environ, Memory(data), etag, TYPES[ending], (SVG_POLICY,) if ending == "svg" else ())


def _query(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=16, errors="replace")
    except ValueError as error:
        raise refusal(HTTPStatus.BAD_REQUEST, "this query has too many fields") from error


def _number(asked: dict[str, str], name: str, default: int = 0) -> int:
    value = asked.get(name) or str(default)
    if not (value.isascii() and value.isdecimal() and len(value) < 20 and int(value) < _POSITIONS):
        raise refusal(HTTPStatus.BAD_REQUEST, f"{name} is a number from 0 on, not {one_line(value)[:40]!r}")
    return int(value)


def _span(asked: dict[str, str]) -> tuple[float, float] | None:
    """The part of a recording that is asked for: two times in seconds, or None."""
    if "t" not in asked:
        return None
    times = _TIMES.fullmatch(asked["t"])
    if times is None:
        raise refusal(
            HTTPStatus.BAD_REQUEST, f"t is two times in seconds, as t=12.5,17.25, not {one_line(asked['t'])[:40]!r}"
        )
    return float(times[1]), float(times[2])


def _static(environ: dict[str, Any], place: str) -> HttpAnswer:
    name = place.rpartition("/")[2]
    data = static_files().get(name)
    if data is None or f"{OWN}static/{place}" != static_place() + name:
        raise NotFoundError("there is no such file")
    form = mimetypes.guess_type(name)[0] or "text/plain"
    return answer_file(environ, Memory(data), f'"{place.partition("/")[0]}"', f"{form}; charset=utf-8", (_FOREVER,))
