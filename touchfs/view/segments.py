"""The view `segments/`: each time segment of a recording as files of its own, `<key>/0000.wav`, `.txt`, `.json`.

The `.wav` is a header and a range of the recording's PCM: nothing is decoded or copied. The `.json` is the segment as
stored, and under `touchfs` what was made of it. A segment with nothing in it is a valid `.wav` without samples, and
its `.json` says why. Samples without PCM at a known rate, or without segments, are not in this view.
"""

from __future__ import annotations

import json
from dataclasses import replace

from touchfs.sample import Sample
from touchfs.shard.touch import AUDIO_NAMES
from touchfs.view.file import File
from touchfs.view.raw import metainfo_field

SAMPLE_SIZE = 2


def files(sample: Sample) -> list[File]:
    """The files of all segments of a sample, named by `File.extension`: `0000.wav`, …"""
    audio = next((field for name, field in sample.fields.items() if name in AUDIO_NAMES), None)
    metainfo = metainfo_field(sample)
    if audio is None or metainfo is None or not audio.form.startswith("wav/"):
        return []
    rate = int(audio.form.removeprefix("wav/"))
    shown = []
    for number, segment in enumerate(sample.metainfo.segments):
        first, length, problem = segment.span(rate, audio.size // SAMPLE_SIZE)
        pcm = replace(audio, offset=audio.offset + first * SAMPLE_SIZE, size=length * SAMPLE_SIZE, note=problem or "")
        made = {"key": sample.key, "segment": number, "sample_rate": rate, "offset": first, "length": length}
        told = segment.fields | {"touchfs": made | ({"problem": problem} if problem else {})}
        text = json.dumps(told, ensure_ascii=False) + "\n"
        shown.append(File(f"{number:04d}.wav", pcm, number))
        shown.append(File.text(f"{number:04d}.json", sample.fields[metainfo], text, number))
        if segment.text is not None:
            shown.append(File.text(f"{number:04d}.txt", sample.fields[metainfo], segment.text, number))
    return shown
