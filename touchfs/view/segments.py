"""The view `segments/`: each time segment of a recording as files of its own, `<key>/0000.wav`, `.txt`, `.json`.

The `.wav` is a header and a range of the recording's PCM: nothing is decoded or copied. The `.json` is the segment as
stored, and under `touchfs` what was made of it. A segment with nothing in it is a valid `.wav` without samples, and
its `.json` says why. Samples without PCM at a known rate, or without segments, are not in this view; but a cut without
a recording has the texts and the `.json` of its segments.

Text comes in versions. The default one is `0000.txt`; every other string of a segment is one too, as
`0000.<field>.txt`, but those that are known to be something else (`NO_TEXTS`); and so are the strings of an object that
maps versions to texts:

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
from touchfs.sample import Recording, StoredSample
from touchfs.view.file import File
from touchfs.view.form import piece, recording_of

SAMPLE_SIZE = 2
# Quoted, in bytes: a file's name has 255, and a number and `.txt` are in it too.
VERSION_MAX = 200
NO_TEXTS = frozenset({"start", "end", "id", "key", "recording_id", "speaker", "gender", "language", "lang", "type"})
# Without the particulars: what differs from file to file is in the .json, and a catalog has few kinds of file.
NO_RECORDING = "the cut has no recording"
NOTE = "not all that the segment asks for: its .json says why"


def files(sample: StoredSample) -> list[File]:
    """The files of all segments of a sample, named by `File.extension`: `0000.wav`, …"""
    recording = recording_in(sample) if sample.metainfo.segments else None
    shown = []
    for number, segment in enumerate(sample.metainfo.segments):
        made: dict[str, Any] = {"key": sample.key, "segment": number}
        if recording is not None:
            first, length, problem = segment.span(recording.rate, recording.length)
            made |= {"sample_rate": recording.rate, "offset": first, "length": length}
            shown.append(File(_name(number, "wav"), piece(recording, first, length, NOTE if problem else ""), number))
        elif isinstance(segment, Supervision):
            problem = NO_RECORDING
        else:
            continue
        if problem:
            made["problem"] = problem
        source = sample.fields[sample.metainfo_field]
        shown.append(File.text(_name(number, "json"), source, _json(segment.fields, made), number))
        for version, text in text_versions(segment).items():
            shown.append(File.text(_name(number, extension(version)), source, text, number))
    return shown


def recording_in(sample: StoredSample) -> Recording | None:
    """The recording of a sample: its first field of PCM, unless it says another one."""
    return sample.recording or next(filter(None, map(recording_of, sample.fields.values())), None)


def text_versions(segment: AnySegment) -> dict[str, str]:
    """The texts of a segment by the name of their version; that of the default text is "".

    The others are its fields, then what is in its objects of texts. Of those with one name, the first counts.
    """
    fields = segment.fields
    default = "txt" if isinstance(fields.get("txt"), str) else "text"
    of_fields = [(name, text) for name, text in fields.items() if name not in NO_TEXTS and name != default]
    objects = [fields.get(name) for name in ("txt", "text", "txts", "texts")]
    of_objects = [each for texts in objects if isinstance(texts, dict) for each in texts.items()]
    versions = {} if segment.text is None else {"": segment.text}
    for version, text in of_fields + of_objects:
        if isinstance(text, str) and is_version(version):
            versions.setdefault(version, text)
    return versions


@lru_cache
def is_version(name: str) -> bool:
    """Whether a version of a text can be called so: a file's name must hold it, and no two may be quoted alike."""
    try:
        name.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return name != "" and len(extension(name)[: -len(".txt")].encode()) <= VERSION_MAX


@lru_cache
def extension(version: str) -> str:
    """What the name of a segment's text ends in, of the version of this name."""
    return quote(f"{version}.txt").decode() if version else "txt"


@lru_cache(40_000)
def _name(number: int, extension: str) -> str:
    return f"{number:04d}.{extension}"


def _json(fields: dict[str, Any], made: dict[str, Any]) -> str:
    try:
        return json.dumps(fields | {"touchfs": made}, ensure_ascii=False) + "\n"
    except RecursionError:  # to write a nest takes more of the stack than to read it
        made = made | {"problem": "the segment as stored is nested too deep to be repeated here"}
        return json.dumps({"touchfs": made}, ensure_ascii=False) + "\n"
