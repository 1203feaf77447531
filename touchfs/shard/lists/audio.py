"""The audio that lists name: found below the audio root, and measured by its header.

A path is relative to the root, whatever directory its tool would start from, or absolute if it begins with the root's
own path or URL. Only recordings, by their extension, are looked at. A file is looked at once for all lines near each
other that name it. Files at URLs are looked at by several threads, ahead of the line that is indexed: each takes two
requests, and ten thousand of them one after the other half of an hour.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from touchfs.errors import FormatError, NotFoundError, SourceError, SourceTimeoutError, TouchfsError
from touchfs.extent import drive
from touchfs.form.beside import WHOLE, whole_file
from touchfs.media import duration
from touchfs.media.extensions import is_recording
from touchfs.posix.paths import is_url, speaks_http
from touchfs.posix.threads import start_threads
from touchfs.sample import Field, Recording, StoredRecording, UnmeasuredRecording
from touchfs.segments.formats.lines import shown
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint

FIELD = "audio"
# The others have no header that tells their length.
_MEASURED = (".wav", ".flac")
_FILES_KEPT = 1024
# Threads that look ahead, as many as a process has requests by default, and lines that they may be ahead.
_THREADS, _AHEAD = 16, 64

T = TypeVar("T")
_Found = tuple[Fingerprint, duration.AudioInfo | None]


class ListedAudio(NamedTuple):
    """The field of a file as it is stored, and the recording in it, None if no parts of it can be read."""

    field: Field
    recording: Recording | None


class AudioRoot:
    """The audio below the directory or URL `root`. `source` is the file of the shard that names it."""

    def __init__(self, root: str, source: str) -> None:
        self._root = root
        self._prefix = os.path.join(root, "")
        self._source = source
        self._lock = threading.Lock()
        # What was found, or is being looked for, by path below the root.
        self._found: OrderedDict[str, Future[_Found]] = OrderedDict()

    def ahead(self, rows: Iterable[T], path_of: Callable[[T], str | None]) -> Iterator[T]:
        """The rows of a list, while threads look at the files at URLs that the next ones name."""
        if not is_url(self._prefix):
            yield from rows
            return
        queue: SimpleQueue[T | None] = SimpleQueue()
        start_threads(_THREADS, self._look_ahead, queue, path_of, name="audio")
        coming: deque[T] = deque()
        try:
            for row in rows:
                queue.put(row)
                coming.append(row)
                if len(coming) > _AHEAD:
                    yield coming.popleft()
            yield from coming
        finally:
            with suppress(Empty):
                while True:
                    queue.get_nowait()
            for _ in range(_THREADS):
                queue.put(None)

    def _look_ahead(self, queue: SimpleQueue[T | None], path_of: Callable[[T], str | None]) -> None:
        while (row := queue.get()) is not None:
            with suppress(TouchfsError):  # whoever indexes the row gets its error
                if (path := path_of(row)) is not None:
                    self._look(self._within(path))

    def find(self, path: str) -> ListedAudio:
        """The audio at a path as its list has it. Raises FormatError if it cannot be shown; the error says why.

        Raises SourceTimeoutError if its store does not answer: then no file of the list can be looked at.
        """
        try:
            within = self._within(path)
            fingerprint, info = self._look(within)
        except SourceTimeoutError:
            raise
        except (FormatError, NotFoundError, SourceError) as error:
            raise FormatError(f"its audio {shown(path)}: {error.message}") from error
        extension = os.path.splitext(within)[1][1:]
        detail = whole_file(within, fingerprint)
        field = Field(FIELD, self._source, 0, fingerprint.size, WHOLE, extension, detail=detail)
        return ListedAudio(
            field, UnmeasuredRecording.first([field]) if info is None else StoredRecording.measured(field, info)
        )

    def _within(self, path: str) -> str:
        """The path relative to the root. Raises FormatError."""
        within = path.removeprefix(self._prefix)
        if within != path and speaks_http(path):  # a URL has escapes
            within = unquote(within)
        if within.startswith("/") or is_url(within):
            raise FormatError("is not below the audio root")
        if not is_recording(os.path.splitext(within)[1][1:]):
            raise FormatError("has not the extension of a recording")
        try:
            os.fsencode(within)
        except UnicodeEncodeError as error:  # a lone surrogate, which JSON can contain
            raise FormatError("is not a path") from error
        return within

    def _look(self, path: str) -> _Found:
        """As `_look`, once for all threads."""
        with self._lock:
            found = self._found.get(path)
            if is_new := found is None:
                found = self._found[path] = Future()
                if len(self._found) > _FILES_KEPT:
                    self._found.popitem(last=False)
        if is_new:
            try:
                found.set_result(_look(self._root, path))
            except BaseException as error:
                with self._lock:
                    self._found.pop(path, None)
                found.set_exception(error)
                raise
        return found.result()


def _look(root: str, path: str) -> _Found:
    """The fingerprint of a file, and the format of the recording if it has a header that says it."""
    with closing(DATA.open_beneath(root, path)) as file:
        file.open()
        fingerprint, info = file.fingerprint, None
        if fingerprint is None:
            raise SourceError("cannot be told from later versions", path=path)
        if path.lower().endswith(_MEASURED):
            try:
                info = drive(duration.scan(fingerprint.size), file)
            except FormatError:
                info = None
        return fingerprint, info
