"""The audio that lists name: found below the audio root, and measured by its header.

A path is relative to the root, whatever directory its tool would start from, or absolute if it begins with the root's
own path or URL. Only recordings, by their extension, are looked at. A file is opened and read once, and so are several
lines in a row that name it.
"""

from __future__ import annotations

import os
from contextlib import closing
from functools import lru_cache, partial
from typing import NamedTuple
from urllib.parse import unquote

from touchfs.errors import FormatError, NotFoundError, SourceError, SourceTimeoutError
from touchfs.extent import drive
from touchfs.form.beside import WHOLE, whole_file
from touchfs.media import duration
from touchfs.media.extensions import is_recording
from touchfs.posix.paths import speaks_http
from touchfs.sample import Field, Recording, StoredRecording, UnmeasuredRecording
from touchfs.segments.formats.lines import shown
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint

FIELD = "audio"
# The others have no header that tells their length.
_MEASURED = (".wav", ".flac")
_FILES_KEPT = 1024


class ListedAudio(NamedTuple):
    """The field of a file as it is stored, and the recording in it, None if no parts of it can be read."""

    field: Field
    recording: Recording | None


class AudioRoot:
    """The audio below the directory or URL `root`. `source` is the file of the shard that names it."""

    def __init__(self, root: str, source: str) -> None:
        self._prefix = os.path.join(root, "")
        self._source = source
        self._look = lru_cache(_FILES_KEPT)(partial(_look, root))

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
        if within.startswith("/"):
            raise FormatError("is not below the audio root")
        if not is_recording(os.path.splitext(within)[1][1:]):
            raise FormatError("has not the extension of a recording")
        try:
            os.fsencode(within)
        except UnicodeEncodeError as error:  # a lone surrogate, which JSON can contain
            raise FormatError("is not a path") from error
        return within


def _look(root: str, path: str) -> tuple[Fingerprint, duration.AudioInfo | None]:
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
