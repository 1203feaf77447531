"""Lists that name audio elsewhere: what one is, and which `--audio-root` shows its audio.

The first and the last lines are enough: lists are mostly sorted, so the directory that these have in common is that of
all.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import takewhile
from shlex import quote
from typing import NamedTuple

from touchfs.containers.lines.audio import audio_path
from touchfs.containers.lines.layout import value_of
from touchfs.core.errors import FormatError
from touchfs.core.json_text import parse_json
from touchfs.core.location import Location
from touchfs.core.urls import shown
from touchfs.manifest.kaldi import parse_recording
from touchfs.shard.single import RECORDINGS
from touchfs.source.data import DATA, find_type
from touchfs.source.store import FileType

# Bytes that are read at either end.
_READ = 1 << 16


class AudioList(NamedTuple):
    """The paths of audio in some lines of the list at `path`, as written; `problem` is why a line has none, or ""."""

    path: str
    paths: list[str]
    problem: str

    @property
    def advice(self) -> str:
        """What shows the audio, as a user types it."""
        if not self.paths:
            return self.problem
        absolute = [path for path in self.paths if os.path.isabs(path) or Location.of(path).is_url]
        if root := _common(absolute):
            there = Location.of(root).is_url or os.path.isdir(root)
            typed = quote(shown(root))
            return f"add --audio-root {typed}" if there else f"add --audio-root DIR={typed}, and DIR has its files now"
        if absolute:
            return "add --audio-root DIR, the directory of all its audio"
        for place in (os.path.dirname(self.path), os.curdir):
            if find_type(Location.of(place).beneath(self.paths[0])) is FileType.FILE:
                return f"add --audio-root {quote(shown(place))}"
        return f"add --audio-root DIR, where DIR/{self.paths[0]} is a file"


def read_audio_list(path: str) -> AudioList | None:
    """The list of audio at a path; None if the file is something else. Raises NotFoundError or SourceError."""
    paths, problem, read = list[str](), "", _of_kaldi if os.path.basename(path) == RECORDINGS else _of_json
    for number, line in enumerate(_lines(path)):
        try:
            found = read(line)
        except FormatError as error:
            problem = problem or error.message
            continue
        if found is not None:
            paths.append(found)
        elif number == 0:
            return None
    return AudioList(path, paths, problem) if paths or problem else None


def instead(path: str) -> str:
    """What a `.json` is instead of a list of audio, a JSON object on each line; "" if it is one.

    Raises NotFoundError or SourceError.
    """
    return "JSON; JSON lines are called .jsonl" if read_audio_list(path) is None else ""


def _of_kaldi(line: bytes) -> str:
    return parse_recording(line.decode(errors="surrogateescape"))[1]


def _of_json(line: bytes) -> str | None:
    try:
        parsed = parse_json(value_of(line, 0))
    except (ValueError, RecursionError):
        return None
    return audio_path(parsed) if isinstance(parsed, dict) else None


def _lines(path: str) -> Iterator[bytes]:
    with closing(DATA.open(path)) as file:
        file.open()
        size = file.size
        head = bytes(file.read(0, min(size, _READ)))
        start = max(size - _READ, len(head))
        tail = bytes(file.read(start, size - start))
    if head.startswith(b"\x1f\x8b"):  # of what is decompressed, the end costs all of it
        head, tail = _decompressed(head), b""
    elif start > len(head):  # a line is cut at both
        head, tail = head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :]
    return (line for line in (head + tail).split(b"\n") if line.strip())


def _decompressed(head: bytes) -> bytes:
    """Whole lines at the start of a gzip file; none if it is damaged."""
    try:
        lines = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _READ)
    except zlib.error:
        return b""
    return lines[: lines.rfind(b"\n") + 1]


def _common(paths: Iterable[str]) -> str:
    """The directory, or the start of the URLs, that absolute paths have in common; "" if they have none."""
    steps = zip(*(os.path.dirname(path).split("/") for path in paths), strict=False)
    root = "/".join(step[0] for step in takewhile(lambda step: len({*step}) == 1, steps))
    return "" if root.endswith(("/", ":")) else root
