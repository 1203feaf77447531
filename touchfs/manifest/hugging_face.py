"""The metadata.csv of an AudioFolder of Hugging Face's datasets: a header, and a row for each file.

    file_name,transcription,speaker,language,duration

Paths are relative to the directory of the list. A row is a file, so utterances are files of their own here.
"""

from __future__ import annotations

import re

from touchfs.manifest.entry import Utterance, one_line

METADATA_HEADER = "file_name,transcription,speaker,language,duration\n"
_SPECIAL = re.compile(r'[",\r\n]|^\s|\s$')


def build_metadata_row(path: str, utterance: Utterance) -> str:
    """Return the row of an utterance whose audio is the file at `path`."""
    duration = repr(utterance.length / utterance.recording.rate)
    cells = path, one_line(utterance.text), utterance.speaker or "", utterance.language or "", duration
    return ",".join(map(_cell, cells)) + "\n"


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text
