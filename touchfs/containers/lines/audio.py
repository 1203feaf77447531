"""The audio that lists name: found below the audio root, and measured by its header.

A path is relative to the root, whatever directory its tool would start from, or absolute if it begins with the root's
own path or URL, or with the one that it was (`Limits.audio_was`). Only recordings, by their extension, are looked at. A
file is looked at once for all lines near each other that name it. Files at URLs are looked at by several threads, ahead
of the line that is indexed: each takes two requests, and ten thousand of them one after the other half of an hour.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from shlex import quote
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from touchfs.core.errors import FormatError, NoAnswerError, NotFoundError, SourceError, TouchfsError
from touchfs.core.extent import drive
from touchfs.core.location import Location
from touchfs.form.beside import WHOLE, whole_file
from touchfs.manifest.json_lines import parse_reference
from touchfs.media import duration
from touchfs.media.extensions import is_recording
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.posix.threads import ThreadPool
from touchfs.segments.formats.lines import shown
from touchfs.shard.options import LINE_RULE
from touchfs.shard.sample import Field, Recording, SampleSegments, StoredRecording, UnmeasuredRecording
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
    """The audio below a directory or URL, which lists may name by the path `was`. `source` is the file of the shard
    that names it.
    """

    def __init__(self, root: str, was: str, source: str) -> None:
        self._root = root
        self._location = Location.of(root)
        self._prefixes = [os.path.join(each, "") for each in (was, root) if each]
        self._source = source
        # By path below the root.
        self._found: BoundedCache[str, _Found] = BoundedCache(_FILES_KEPT)

    def ahead(self, rows: Iterable[T], path_of: Callable[[T], str | None]) -> Iterator[T]:
        """The rows of a list, while threads look at the files at URLs that the next ones name."""
        if not self._location.is_url:
            yield from rows
            return
        pool = ThreadPool(_THREADS, "audio")
        try:
            for row, _ in pool.in_order(partial(self._look_ahead, path_of), rows, _AHEAD):
                yield row
        finally:
            pool.cancel()

    def _look_ahead(self, path_of: Callable[[T], str | None], row: T) -> None:
        with suppress(TouchfsError):  # indexing the row gets its error
            if (path := path_of(row)) is not None:
                self._look(self._within(path))

    def find(self, path: str) -> ListedAudio:
        """The audio at a path as its list has it. Raises FormatError if it cannot be shown; the error says why.

        Raises NoAnswerError if its store does not answer: then no file of the list can be looked at.
        """
        try:
            within = self._within(path)
            fingerprint, info = self._look(within)
        except NoAnswerError:
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
        prefix = next(filter(path.startswith, self._prefixes), "")
        within = path.removeprefix(prefix)
        if Location.of(prefix).speaks_http:  # a URL has escapes
            within = unquote(within)
        if within.startswith("/") or Location.of(within).is_url:
            moved = quote(f"{self._location.shown}=OLD")
            raise FormatError(f"is not below the audio root: if it was moved there from OLD, add --audio-root {moved}")
        if not is_recording(os.path.splitext(within)[1][1:]):
            raise FormatError("has not the extension of a recording")
        try:
            os.fsencode(within)
        except UnicodeEncodeError as error:  # a lone surrogate, which JSON can contain
            raise FormatError("is not a path") from error
        return within

    def _look(self, path: str) -> _Found:
        """Like `_look`, once for all threads."""
        return self._found.get(path, lambda: _look(self._root, path))


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


# Lhotse's recordings describe whole files, and nothing that is said in them.
_OF_RECORDINGS = "sources"


class LineAudio(NamedTuple):
    """The audio of a line as a field, the recording in it, and the segment that the line is."""

    fields: Mapping[str, Field]
    recording: Recording | None
    segments: SampleSegments | None


NO_AUDIO = LineAudio({}, None, None)


def audio_path(parsed: Mapping[str, Any]) -> str | None:
    """The path of the audio that the object of a line names, as it is written there. Raises FormatError."""
    reference = parse_reference(parsed)
    return None if reference is None else reference.path


def find_audio(line: Field, parsed: Mapping[str, Any], root: AudioRoot) -> LineAudio:
    """The audio that the object of a line names. Raises FormatError if it cannot be shown."""
    reference = parse_reference(parsed)
    if reference is None or reference.path is None:
        return NO_AUDIO
    field, recording = root.find(reference.path)
    is_segment = _OF_RECORDINGS not in parsed
    segments = SampleSegments(line, LINE_RULE, (reference.segment,)) if is_segment else None
    return LineAudio({FIELD: field}, recording, segments)
