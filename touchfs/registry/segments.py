"""Find the segments of a sample. The rules are the same for shards of all kinds.

The rules of `touchfs.segments` are tried in order, first on the sample's JSON, then on the files beside its recording,
and then on the lists beside the shard (`touchfs.containers.lines.kaldi`), and the first that finds segments wins.
The line of a list that names the recording (`touchfs.containers.lines`) comes last.
`Options.segments` names the only rule to try.

A sample's JSON is its metainfo, its cut or its line, which its shard has parsed already; then its fields `json` and
`NAME.json`. Fields are only read if the sample has a recording, so shards without JSON or subtitles cost no read. A
field of over `Limits.json` bytes is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from touchfs.containers.lines.kaldi import ListsBeside, are_lists_beside, lists_beside
from touchfs.core.errors import FormatError, MissingExtraError
from touchfs.core.extent import Buffer, Content, Memory
from touchfs.core.json_text import parse_json
from touchfs.form.compressed_content import plain_extension, read_plain
from touchfs.form.plain import BYTES, INLINE
from touchfs.limits import too_long
from touchfs.media.extensions import is_recording
from touchfs.registry.contents import FieldContents
from touchfs.segments.json_rules import JSON_RULES, segments_of_json
from touchfs.segments.segment import Segments
from touchfs.segments.sidecar import FILE_RULES, parse
from touchfs.shard.options import FIRST_RULE, KALDI_RULE, LINE_RULE, NEMO_RULE, Options
from touchfs.shard.sample import Field, SampleSegments, StoredSample, recording_in
from touchfs.shard.single import SEGMENTS

_JSON = "json"
# Names the segments of lists beside the shard, which no field of the sample has.
_LISTED = Field(SEGMENTS, "", 0, 0, INLINE, None)
# The first block is enough to tell a transcript from labels.
_FIRST_BLOCK, _BLOCK = 2**10, 2**16


class FoundSegments(NamedTuple):
    """The segments of a sample, None if it has none; and a line about each field that could not be parsed."""

    segments: SampleSegments | None
    problems: list[str]


class SegmentFinder:
    """Finds the segments of the samples of one shard. One that only `knows` reads nothing for that, and `left` is true
    once it should have.
    """

    def __init__(self, contents: FieldContents, options: Options, *, knows: bool = False) -> None:
        rule = options.segments
        files = [_JSON, *FILE_RULES] if rule == FIRST_RULE else [_JSON if rule in JSON_RULES else rule]
        self._places = {extension: place for place, extension in enumerate(files)}
        self._json_rule = rule if rule in JSON_RULES else None
        self._contents = contents
        self._limit = options.limits.json
        self._parsed: dict[str, int] = {}  # stored bytes, by the file of the shard
        self._of_lists = (KALDI_RULE, NEMO_RULE) if rule == FIRST_RULE else (rule,)
        self._reads_line = rule in (FIRST_RULE, LINE_RULE)
        self._knows = knows
        self.left = knows and are_lists_beside(contents.shard.files, self._of_lists)

    @property
    def has_lists(self) -> bool:
        """True if lists are beside the shard, and may have segments of its samples."""
        return self._lists is not None

    @property
    def remarks(self) -> list[str]:
        """Lines about segments that no sample of the shard has. Raises the errors of sources."""
        return [self._lists.problem] if self._lists is not None and self._lists.problem else []

    @cached_property
    def _lists(self) -> ListsBeside | None:
        return (
            None if self._knows else lists_beside(self._contents.shard.path, self._contents.shard.files, self._of_lists)
        )

    def find(self, sample: StoredSample) -> FoundSegments:
        """Return the segments of a sample. Raises the errors of sources."""
        problems = []
        for field in self._fields(sample):
            if self._knows and field.name != sample.metainfo_field:
                self.left = True
                continue
            try:
                found = self._parse(field, sample)
            except (FormatError, MissingExtraError) as error:
                problems.append(f"no segments are read from its {field.written or field.name}: {error.message}")
                continue
            if found is not None:
                return FoundSegments(SampleSegments(field, *found), problems)
        if self._lists is not None and _has_recording(sample):
            try:
                if listed := self._lists.find(sample.key):
                    return FoundSegments(SampleSegments(_LISTED, self._lists.tool.rule, listed), problems)
            except FormatError as error:
                problems.append(error.message)
        return FoundSegments(sample.listed if self._reads_line else None, problems)

    def _fields(self, sample: StoredSample) -> list[Field]:
        """The fields that may have segments, in the order of the rules."""
        found = []
        for name, field in sample.fields.items():
            extension, is_named = _last(field.extension)
            if (place := self._places.get(extension)) is not None:
                is_parsed = name == sample.metainfo_field
                found.append(((not is_parsed, place, is_named), field))
        if len(found) > 1:
            found.sort(key=lambda each: each[0])
        if found and found[-1][0][0] and not _has_recording(sample):
            return [field for (is_unread, _, _), field in found if not is_unread]
        return [field for _, field in found]

    def _parse(self, field: Field, sample: StoredSample) -> Segments | None:
        if field.name == sample.metainfo_field:
            return segments_of_json(sample.metainfo.fields, self._json_rule)
        content = self._contents.content(field)
        extension, _ = _last(field.extension)
        if content.size > self._limit:
            raise FormatError(too_long("it", self._limit, "JSON" if extension == _JSON else f".{extension}"))
        self._count(field)
        if plain_extension(field.extension or "") != field.extension:
            content = Memory(read_plain(field.extension or "", content, self._limit))
        if extension == _JSON:
            return segments_of_json(_decode(content.read(0, content.size)), self._json_rule)
        return parse(extension, _blocks(content), sample.key)

    def _count(self, field: Field) -> None:
        """Raise FormatError if fields overlap so much that they have more bytes than their file: a thousand links may
        lead to the same 16 MB. Cells of tables that are no ranges of their file cannot overlap.
        """
        if field.form.is_stored and field.form is not BYTES:
            return
        parsed = self._parsed[field.source] = self._parsed.get(field.source, 0) + field.size
        if parsed > self._contents.source(field).size:
            raise FormatError("too many links lead to it and to others: store a file for each sample")


def _has_recording(sample: StoredSample) -> bool:
    return any(is_recording(field.extension) for field in sample.fields.values()) or recording_in(sample) is not None


@lru_cache
def _last(extension: str | None) -> tuple[str, bool]:
    """The last part of an extension, in lower case, and whether a name precedes it, as in `whisper.srt`. That of a
    compression does not count.
    """
    name, _, last = plain_extension(extension or "").rpartition(".")
    return last.lower(), name != ""


def _decode(data: Buffer) -> Any:
    try:
        return parse_json(bytes(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"is not JSON: {error}") from error


def _blocks(content: Content) -> Iterator[Buffer]:
    offset, length = 0, _FIRST_BLOCK
    while offset < content.size:
        yield content.read(offset, min(length, content.size - offset))
        offset, length = offset + length, _BLOCK
