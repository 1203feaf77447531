"""A shard that is a data directory of Kaldi's. Each line of its `wav.scp` is a sample: the recording that it names.

    wav.scp    recording path        the samples, in this order; a command is never run, and refused
    text       recording words       used without `segments`: then a recording is an utterance
    utt2spk    recording speaker     the same

With `segments`, these lists are those beside any other shard (`touchfs.containers.lines.kaldi`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from touchfs.containers.lines.audio import FIELD, AudioRoot
from touchfs.containers.lines.id_lines import IdLines, decode
from touchfs.containers.lines.reader import lines
from touchfs.core.errors import FormatError, NotFoundError
from touchfs.form.plain import BYTES
from touchfs.limits import too_long
from touchfs.manifest.kaldi import parse_recording
from touchfs.segments.segment import Segment
from touchfs.segments.times import Times
from touchfs.shard.options import LINE_RULE, Options
from touchfs.shard.sample import Field, Recording, SampleSegments, StoredSample, StoredSamples
from touchfs.shard.single import RECORDINGS, list_fingerprints, open_source
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import FileType, Store

# The facts of the other lists about a recording, by the name in a segment.
_FIELDS = {"text": "text", "utt2spk": "speaker"}


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """The fingerprints of the lists of a directory that has no `segments`; else that of its `wav.scp` at `path`.

    Raises NotFoundError or SourceError.
    """
    found = {RECORDINGS: store.stat(path).fingerprint}
    if not list_fingerprints(path, store):
        for name in _FIELDS:
            with suppress(NotFoundError):
                status = store.stat(os.path.join(os.path.dirname(path), name))
                if status.type is FileType.FILE:
                    found[name] = status.fingerprint
    return found


class KaldiShard(StoredSamples):
    """The recordings in the `wav.scp` at `path`. Keeps 16 bytes a line, and 32 for each line of the other lists."""

    index_size = 0
    problems = ()

    def __init__(self, path: str, options: Options, files: Files) -> None:
        limits = options.limits
        if limits.audio_root is None:
            raise FormatError("names audio elsewhere: --audio-root names the directory below which it lies", path=path)
        self.path = path
        self.files = files
        self.size = sum(fingerprint.size for fingerprint in files.values())
        self._audio = AudioRoot(limits.audio_root, limits.audio_was, RECORDINGS)
        self._limit = limits.json
        self._file = open_source(path, RECORDINGS, files)
        self._lines = lines(self._file)
        self._lists = {name: IdLines(open_source(path, name, files)) for name in files if name in _FIELDS}

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        for each in self._lists.values():
            each.close()

    def __len__(self) -> int:
        return len(self._lines)

    def samples(self, ordinals: range) -> Iterator[StoredSample]:
        return map(self.sample, self._audio.ahead(ordinals, lambda ordinal: parse_recording(self._text(ordinal))[1]))

    def sample(self, ordinal: int) -> StoredSample:
        """The recording at an ordinal. Reads its lines, and the header of its audio."""
        offset, size = self._lines[ordinal].tolist()
        line = Field(RECORDINGS, RECORDINGS, offset, size, BYTES, None)
        key, fields, problem = "", {}, ""
        recording: Recording | None = None
        listed: SampleSegments | None = None
        try:
            text = self._text(ordinal)
            key = next(iter(text.split(None, 1)), "")
            fields[FIELD], recording = self._audio.find(parse_recording(text)[1])
            listed = self._utterance(line, key)
        except FormatError as error:
            problem = error.message
        return StoredSample(
            key or f"{ordinal:08d}",
            ordinal,
            fields,
            problem=problem,
            is_keyed=key != "",
            recording=recording,
            listed=listed,
        )

    def _text(self, ordinal: int) -> str:
        offset, size = self._lines[ordinal].tolist()
        if size > self._limit:
            raise FormatError(too_long(f"the line at byte {offset}", self._limit))
        return decode(self._file.read(offset, size))

    def _utterance(self, line: Field, key: str) -> SampleSegments | None:
        """The utterance that a whole recording is, if a list says what. Raises FormatError."""
        found = {_FIELDS[name]: value for name, each in self._lists.items() if (value := each.find(key)) is not None}
        if not found:
            return None
        return SampleSegments(line, LINE_RULE, (Segment.timed(Times(0), {"id": key, **found}),))
