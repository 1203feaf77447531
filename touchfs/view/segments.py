"""The view `segments/`: each time segment of a recording as files of its own, `<key>/0000.wav`, `.txt`, `.json`.

The `.wav` is a header and a range of the recording's PCM: nothing is decoded or copied. The `.json` is the segment as
stored, and under `touchfs` what was derived from it. An empty segment is a valid `.wav` without samples, and its
`.json` gives the reason. Samples without PCM at a known rate, or without segments, are not in this view; but a cut
without a recording has the texts and the `.json` of its segments.

Text comes in versions. The default one is `0000.txt`. Every other string field of a segment is a version,
`0000.<field>.txt`, except fields with a known other meaning (`NO_TEXTS`); so are the strings of an object that maps
versions to texts:

    {"start": 0, "end": 1.5, "txt": "…", "paraformer": "…", "txts": {"whisper": "…"}}
        0000.txt  0000.paraformer.txt  0000.whisper.txt
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from touchfs.format.lhotse import Supervision
from touchfs.format.metainfo import AnySegment
from touchfs.names import quote
from touchfs.sample import StoredRecording, StoredSample
from touchfs.view.file import File

# In bytes, when quoted: a file's name has at most 255, including a number and `.txt`.
VERSION_MAX = 200
NO_TEXTS = frozenset({"start", "end", "id", "key", "recording_id", "speaker", "gender", "language", "lang", "type"})
# Without details: they are in the .json, because a catalog has only a limited number of kinds of file.
NO_RECORDING = "the cut has no recording"
NOTE = "not all that the segment asks for: its .json says why"


def files(sample: StoredSample) -> list[File]:
    """The files of all segments of a sample. `File.extension` is the whole name: `0000.wav`, …"""
    recording = recording_in(sample) if sample.metainfo.segments else None
    shown = []
    for number, segment in enumerate(sample.metainfo.segments):
        derived: dict[str, Any] = {"key": sample.key, "segment": number}
        if recording is not None:
            first, length, problem = segment.span(recording.rate, recording.length)
            derived |= {"sample_rate": recording.rate, "offset": first, "length": length}
            shown.append(File(_name(number, "wav"), recording.piece(first, length, NOTE if problem else ""), number))
        elif isinstance(segment, Supervision):
            problem = NO_RECORDING
        else:
            continue
        if problem:
            derived["problem"] = problem
        source = sample.fields[sample.metainfo_field]
        shown.append(File.text(_name(number, "json"), source, _json(segment.fields, derived), number))
        for version, text in text_versions(segment).items():
            shown.append(File.text(_name(number, extension(version)), source, text, number))
    return shown


def recording_in(sample: StoredSample) -> StoredRecording | None:
    """The recording of a sample: `sample.recording`, else its first field of PCM; None if there is none."""
    return sample.recording or next(filter(None, map(StoredRecording.of, sample.fields.values())), None)


def text_versions(segment: AnySegment) -> dict[str, str]:
    """The texts of a segment by version. The default text has the version "".

    The other versions are its string fields, then the members of its objects of texts. The first of a name counts.
    """
    fields = segment.fields
    default = "txt" if isinstance(fields.get("txt"), str) else "text"
    in_fields = [(name, text) for name, text in fields.items() if name not in NO_TEXTS and name != default]
    objects = [fields.get(name) for name in ("txt", "text", "txts", "texts")]
    in_objects = [each for texts in objects if isinstance(texts, dict) for each in texts.items()]
    versions = {} if segment.text is None else {"": segment.text}
    for version, text in in_fields + in_objects:
        if isinstance(text, str) and is_version(version):
            versions.setdefault(version, text)
    return versions


@lru_cache
def is_version(name: str) -> bool:
    """True if a text's version can have this name: it must fit into a file name, and its quoted form must be unique."""
    try:
        name.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return name != "" and len(extension(name)[: -len(".txt")].encode()) <= VERSION_MAX


@lru_cache
def extension(version: str) -> str:
    """The end of the file name of a segment's text of this version."""
    return quote(f"{version}.txt").decode() if version else "txt"


@lru_cache(40_000)
def _name(number: int, extension: str) -> str:
    return f"{number:04d}.{extension}"


def _json(fields: dict[str, Any], derived: dict[str, Any]) -> str:
    try:
        return json.dumps(fields | {"touchfs": derived}, ensure_ascii=False) + "\n"
    except RecursionError:  # writing a nested object takes more stack than reading it
        derived = derived | {"problem": "the segment as stored is nested too deep to be repeated here"}
        return json.dumps({"touchfs": derived}, ensure_ascii=False) + "\n"
