"""The view `segments/`: each time segment of a recording as files of its own, `<key>/0000.wav`, `.txt`, `.json`.

The `.wav` is a header and a range of the recording's PCM: nothing is decoded or copied. The `.json` is the segment as
stored, and under `touchfs` what was made of it. A segment with nothing in it is a valid `.wav` without samples, and
its `.json` says why. Samples without PCM at a known rate, or without segments, are not in this view.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from touchfs.sample import Field, Sample
from touchfs.view.file import File

SAMPLE_SIZE = 2
# Without the particulars: what differs from file to file is in the .json, and a catalog has few kinds of file.
NOTE = "not all that the segment asks for: its .json says why"


def files(sample: Sample) -> list[File]:
    """The files of all segments of a sample, named by `File.extension`: `0000.wav`, …"""
    if not sample.metainfo.segments:
        return []
    audio = next((field for field in sample.fields.values() if field.form.startswith("wav/")), None)
    if audio is None:
        return []
    source = sample.fields[sample.metainfo_field]
    rate = int(audio.form.removeprefix("wav/"))
    shown = []
    for number, segment in enumerate(sample.metainfo.segments):
        first, length, problem = segment.span(rate, audio.size // SAMPLE_SIZE)
        offset, size = audio.offset + first * SAMPLE_SIZE, length * SAMPLE_SIZE
        pcm = Field(audio.name, audio.source, offset, size, audio.form, "wav", NOTE if problem else "")
        made = {"key": sample.key, "segment": number, "sample_rate": rate, "offset": first, "length": length}
        if problem:
            made["problem"] = problem
        wav, told, text = _names(number)
        shown.append(File(wav, pcm, number))
        shown.append(File.text(told, source, _json(segment.fields, made), number))
        if segment.text is not None:
            shown.append(File.text(text, source, segment.text, number))
    return shown


@lru_cache(10_000)
def _names(number: int) -> tuple[str, str, str]:
    return f"{number:04d}.wav", f"{number:04d}.json", f"{number:04d}.txt"


def _json(fields: dict[str, Any], made: dict[str, Any]) -> str:
    try:
        return json.dumps(fields | {"touchfs": made}, ensure_ascii=False) + "\n"
    except RecursionError:  # to write a nest takes more of the stack than to read it
        made = made | {"problem": "the segment as stored is nested too deep to be repeated here"}
        return json.dumps({"touchfs": made}, ensure_ascii=False) + "\n"
