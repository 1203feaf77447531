"""The recordings and utterances of a dataset, in its order, from its catalogs.

A sample with a recording of known length is listed. Its utterances are its segments, as they are in `segments/`; a
sample without segments is one utterance. Only of such a sample something is read from the shard: its `.txt`, if the
catalog does not have it, and its `.json`, for the text, the speaker and the language. So is the header of a stored
recording that no segment shows the channels of. Audio is never decoded. Of a dataset without recordings all
files are listed.

What cannot be listed is yielded as `LeftOut`, with the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.dataset import Dataset
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.recordings.recording_names import name_of, path_of
from touchfs.dataset.sample import JSON_NAMES
from touchfs.form.compressed_content import read_plain, with_compressed
from touchfs.form.recordings import Decoded, Pcm
from touchfs.lists.ids import RecordingIds
from touchfs.lists.records import ListedSample, ListedUtterance
from touchfs.manifest.entry import ListedRecording, Utterance, one_line, utterance_ids
from touchfs.media import duration
from touchfs.media.extensions import is_recording
from touchfs.segments.segment import Segment
from touchfs.segments.times import Times
from touchfs.view.segments import JSON, TEXT, WAV, rows_of_segments, segment_name

_NO_LENGTH = "its length is not known: `touchfs index --full` finds it"


class LeftOut(NamedTuple):
    """A file that is not in all lists, by its path relative to the root of the tree, and the reason."""

    path: str
    reason: str


def listed_samples(dataset: Dataset, *, with_speakers: bool) -> Iterator[ListedSample | LeftOut]:
    """Yield what is to be listed. `with_speakers` says that some utterance has a speaker, so that all ids name one.

    Raises the errors of shards whose catalogs or texts cannot be read.
    """
    ids, lists_files = RecordingIds(dataset), not dataset.has_recordings
    for position, shard in enumerate(dataset.shards):
        lister = _ShardLister(dataset, position, ids, with_speakers=with_speakers, lists_files=lists_files)
        for ordinal in range(shard.samples):
            try:
                yield from lister.sample(ordinal)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                problem = f"sample {ordinal} is damaged in the catalog: index with --force"
                raise FormatError(problem, path=shard.path) from error


class _Recording(NamedTuple):
    """A recording and the row of its file."""

    row: int
    rate: int
    length: int


class _ShardLister:
    def __init__(
        self, dataset: Dataset, position: int, ids: RecordingIds, *, with_speakers: bool, lists_files: bool
    ) -> None:
        self._shard = shard = OpenShard(dataset, dataset.shard(position))
        self._table = shard.tables["shards"]
        self._segments = shard.tables["segments"]
        self._position = position
        self._ids = ids
        self._with_speakers = with_speakers
        self._text_max = dataset.limits.json
        self._lists_files = lists_files

    def sample(self, ordinal: int) -> Iterator[ListedSample | LeftOut]:
        rows = self._table.files(ordinal)
        recording = self._recording(rows)
        if recording is None:
            unknown = [row for row in rows if is_recording(self._table.extension(row))]
            for row in unknown:
                yield LeftOut(self._path(row), self._shard.kind_of(self._table, row).note or _NO_LENGTH)
            for row in rows if self._lists_files else ():
                name = self._ids.of(self._position, ordinal, self._table.shown_key(row))
                yield ListedSample(ListedRecording(name, self._path(row), 0, 0, 0), [])
            return
        parts = rows_of_segments(self._segments, ordinal)
        try:
            channels = self._channels(recording.row, parts)
        except FormatError as error:
            yield LeftOut(self._path(recording.row), f"its channels are not known: {error.message}")
            return
        row = recording.row
        if (path := self._wav_path(row)) is None:
            yield LeftOut(self._path(row), "its name has no room for .wav, or no extension")
            return
        key = self._table.shown_key(row)
        listed = ListedRecording(
            self._ids.of(self._position, ordinal, key),
            path,
            recording.rate,
            channels,
            recording.length,
        )
        utterances = []
        for each in self._utterances(listed, rows, parts, one_line(key)):
            if isinstance(each, LeftOut):
                yield each
            else:
                utterances.append(each)
        yield ListedSample(listed, utterances)

    def _recording(self, rows: Sequence[int]) -> _Recording | None:
        """The recording of a sample, as in `slices/`, if the catalog has its length."""
        for row in rows:
            kind = self._shard.kind_of(self._table, row)
            if kind.rate:
                return _Recording(row, kind.rate, self._table.frames[row])
            form = self._shard.forms[self._table.kind[row] - 1]
            if (timing := form.timing(self._table.length[row], self._table.inline(row))) is not None:
                return _Recording(row, timing.rate, timing.frames)
        return None

    def _channels(self, row: int, parts: Mapping[int, Mapping[str, int]]) -> int:
        """The channels of a recording, by the catalog; else by the header of its file. Raises FormatError."""
        if channels := self._shard.kind_of(self._table, row).channels:
            return channels
        form = self._shard.forms[self._table.kind[row] - 1]
        if isinstance(form, Pcm):
            return form.channels
        wav = next((files[WAV] for files in parts.values() if WAV in files), None)
        if wav is not None:
            form = self._shard.forms[self._segments.kind[wav] - 1]
            if isinstance(form, Pcm | Decoded):
                return form.channels
        content = self._shard.content(self._table, row)
        info = drive(duration.scan(content.size), content)
        if info is None:
            raise FormatError("its header does not say how long it is")
        return info.channels

    def _path(self, row: int) -> str:
        return f"{self._shard.shard.path_in('shards')}/{os.fsdecode(self._table.path(row))}"

    def _wav_path(self, row: int) -> str | None:
        """The path of a recording as a WAV: the stored file if it is one. None if `slices/` cannot name it."""
        if self._table.extension(row).rpartition(".")[2] == "wav":
            return self._path(row)
        if name_of(self._shard, row) is None:
            return None
        return f"slices/all/{self._shard.shard.name}/{os.fsdecode(path_of(self._shard, row))}"

    def _utterances(
        self, recording: ListedRecording, rows: Sequence[int], parts: Mapping[int, Mapping[str, int]], key: str
    ) -> Iterator[ListedUtterance | LeftOut]:
        if not parts:
            try:
                fields, text = self._whole(rows)
            except FormatError as error:
                yield LeftOut(recording.path, error.message)
                return
            if recording.length:
                yield self._utterance(recording, 0, (0, recording.length), text, fields, recording.path, key)
            else:
                yield LeftOut(recording.path, "it has no samples")
        for number, files in parts.items():
            path = f"segments/{self._shard.shard.name}/{os.fsdecode(self._segments.path(min(files.values())))}"
            path = f"{path.rpartition('/')[0]}/{segment_name(number, WAV)}"
            fields = self._json(self._segments.inline(files[JSON])) if JSON in files else {}
            derived = fields.get("touchfs", {})
            if "length" not in derived:
                yield LeftOut(path, derived.get("problem", _NO_LENGTH))
                continue
            if not derived["length"]:
                yield LeftOut(path, derived.get("problem", "the segment has no samples"))
                continue
            row = files.get(TEXT)
            text = None if row is None else self._segments.inline(row).decode("utf-8", "replace")
            span = derived["offset"], derived["length"]
            yield self._utterance(recording, number, span, text, fields, path, key)

    def _whole(self, rows: Sequence[int]) -> tuple[dict[str, Any], str | None]:
        """The fields of the JSON of a sample without segments, and its text: its `.txt`, else that of its JSON.

        Raises FormatError if one of them is too long.
        """
        files = {self._table.extension(row): row for row in rows}
        json_name = next((name for each in JSON_NAMES for name in with_compressed(each) if name in files), None)
        text_name = next((name for name in with_compressed("txt") if name in files), None)
        fields = {} if json_name is None else self._json(self._read(files[json_name]))
        text = None if text_name is None else self._read(files[text_name]).decode("utf-8", "replace")
        return fields, Segment.timed(Times(0), fields).text if text is None else text

    def _read(self, row: int) -> bytes:
        return read_plain(self._table.extension(row), self._shard.content(self._table, row), self._text_max)

    def _json(self, data: bytes) -> dict[str, Any]:
        try:
            fields = json.loads(data or b"{}")
        except (ValueError, RecursionError):
            return {}
        return fields if isinstance(fields, dict) else {}

    def _utterance(
        self,
        recording: ListedRecording,
        number: int,
        span: tuple[int, int],
        text: str | None,
        fields: dict[str, Any],
        path: str,
        key: str,
    ) -> ListedUtterance:
        segment = Segment.of(fields)
        speaker, language = segment.speaker, segment.language
        name, speaker_id = utterance_ids(
            recording.id, number, (speaker or recording.id) if self._with_speakers else None
        )
        utterance = Utterance(
            name,
            recording,
            *span,
            speaker_id,
            None if text is None else one_line(text),
            None if speaker is None else one_line(speaker),
            None if language is None else one_line(language),
        )
        return ListedUtterance(utterance, path, self._shard.shard.name, key, number)
