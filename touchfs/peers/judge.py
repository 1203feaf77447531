"""Verify an index beside a tar or a JSONL file against the data. The data decides what it is, never a name.

Nothing is served from such an index: none records from which bytes it was made, so a stale one looks like any other.
All headers, or all lines, of the data are read, and each number of the index must be the start of a sample. The result
also says for which tools the index is right:

    Lhotse, Energon    take all numbers but the last as samples, so exactly one number must follow their samples
    NeMo               takes the last number as a sample too, unless it is the size, but drops offsets of zero blocks
    NeMo's v2          has a companion file that identifies the tar, and is accepted only with it

The last number may be anything from the end of the last member to the size of the file; for JSONL it is the size.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from touchfs.containers.lines import layout as jsonl
from touchfs.containers.tar.layout import members as tar
from touchfs.containers.tar.layout.grouping import COMPANION_SUFFIX, WDS_V2_SUFFIX, Dialect, Grouping, grouping
from touchfs.containers.tar.layout.header import BLOCK, parse_header
from touchfs.core.errors import FormatError, NotFoundError
from touchfs.core.extent import Source
from touchfs.core.progress import reached
from touchfs.format.idx.offsets import OFFSET, Offsets, foreign_format, parse
from touchfs.format.idx.wds_v2 import parse_companion
from touchfs.registry.containers import TAR, single_named
from touchfs.source.data import DATA
from touchfs.source.store import StoredFile

_READ_SIZE = 2**20
_BLANK_SIZE_MAX = 2**12
_REPORT_EVERY = 256
_NUMBERS_MORE = 2**6  # an index never has this many more numbers than its data has bytes
_COMPANION_SIZE_MAX = 2**20
_READERS = {
    Dialect.LHOTSE: "Lhotse",
    Dialect.ENERGON: "Energon",
    Dialect.NEMO: "NeMo",
    Dialect.WDS_V2: "NeMo's v2",
    Dialect.MEMBERS: "readers that take each file for a sample",
}
_ALL = frozenset((Dialect.LHOTSE, Dialect.ENERGON, Dialect.NEMO))
_GROUPED = (Dialect.LHOTSE, Dialect.ENERGON, Dialect.NEMO, Dialect.MEMBERS)


class IndexState(enum.Enum):
    """The state of an index, compared with its data."""

    FITS = "fits"
    MISSING = "missing"
    STALE = "stale"  # a valid index of other data
    DAMAGED = "damaged"  # not a valid index of any data
    UNCHECKED = "not checked"  # the data is not on this machine


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one index. `readers` are the tools that find the right samples with it."""

    index: str
    state: IndexState
    message: str
    samples: int = 0
    readers: frozenset[Dialect] = frozenset()

    def __str__(self) -> str:
        return f"{self.index}: {self.state.value}: {self.message}"


def judge(index: str, data: str) -> Verdict:
    """Verify the index of one file. Raises FormatError, with the offset, if the data itself is damaged."""
    source = DATA.open(data)
    size = source.size
    file = DATA.open(index)
    try:
        if file.size > OFFSET.itemsize * (size + _NUMBERS_MORE):
            return Verdict(
                index, IndexState.DAMAGED, f"it has {file.size // OFFSET.itemsize} numbers for {size} bytes of data"
            )
        stored = file.read(0, file.size)
    except NotFoundError:
        return Verdict(index, IndexState.MISSING, f"there is no index of {os.path.basename(data)}")
    if index.endswith(WDS_V2_SUFFIX):
        return _judge_strict(index, stored, source, size)
    try:
        offsets = parse(stored, size)
    except FormatError as error:
        return _judge_unparsed(index, stored, size, error)
    return judge_offsets(index, offsets, source, size)


def judge_offsets(index: str, offsets: Offsets, source: StoredFile, size: int) -> Verdict:
    """Verify offsets, which ascend to at most `size`, against the data. Raises FormatError if the data is damaged."""
    try:
        if is_tar(source, size):
            return _judge_tar(index, offsets, source, size)
        return _judge_lines(index, offsets, source, size)
    except FormatError as error:
        error.at(source.path)
        raise


def is_tar(source: StoredFile, size: int) -> bool:
    """True if a file is a tar, by its first block; by its name only if that is damaged."""
    if size >= BLOCK:
        block = bytes(source.read(0, BLOCK))
        if not any(block):
            return True
        with suppress(FormatError):
            parse_header(block, 0)
            return True
    return single_named(source.path) is TAR


def _judge_unparsed(index: str, stored: bytes, size: int, error: FormatError) -> Verdict:
    if foreign_format(stored) is None and len(stored) and len(stored) % OFFSET.itemsize == 0:
        swapped = np.frombuffer(stored, OFFSET.newbyteorder())
        if (swapped[1:] >= swapped[:-1]).all() and swapped[-1] <= size:
            return Verdict(index, IndexState.DAMAGED, "its numbers are big-endian, which no tool reads")
        numbers = np.frombuffer(stored, OFFSET)
        if (numbers[1:] >= numbers[:-1]).all():
            return Verdict(index, IndexState.STALE, f"{error.message}: the data was cut, or is another")
    return Verdict(index, IndexState.DAMAGED, str(error))


def _judge_lines(index: str, offsets: Offsets, source: StoredFile, size: int) -> Verdict:
    """For Lhotse and NeMo all lines are samples; for Energon only lines that are not blank."""
    samples, found, blank = len(offsets) - 1, 0, False
    for starts in jsonl.line_offsets(source.read(at, min(_READ_SIZE, size - at)) for at in range(0, size, _READ_SIZE)):
        reached(int(starts[-1]), size)
        listed = offsets[found : found + len(starts)]
        if np.array_equal(starts, listed):
            found += len(starts)
            continue
        for start in starts.tolist():
            if found < len(offsets) and offsets[found] == start:
                found += 1
            elif start != size and _is_blank(source, start, size):
                blank = True
            elif found >= samples:
                message = f"{counted(samples)} in it, and the file goes on at byte {offsets[-1]}"
                return Verdict(index, IndexState.STALE, message)
            else:
                message = f"sample {found} is at byte {offsets[found]} in it, and in the file a line at byte {start}"
                return Verdict(index, IndexState.STALE, message)
    if found != len(offsets):
        message = f"it goes on with byte {offsets[found]}, after the last line"
        return Verdict(index, IndexState.STALE, message)
    if blank:
        return Verdict(index, IndexState.FITS, f"{counted(samples)}, a line each but for blank ones", samples, _ALL)
    return Verdict(index, IndexState.FITS, f"{counted(samples)}, a line each", samples, _ALL)


def _is_blank(source: Source, start: int, size: int) -> bool:
    head = bytes(source.read(start, min(_BLANK_SIZE_MAX, size - start)))
    return not head.partition(b"\n")[0].strip()


class _Candidate:
    """Compares one way to group members into samples with the numbers of an index."""

    __slots__ = ("dialect", "found", "grouping", "problem")

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.grouping: Grouping = grouping(dialect)
        self.found = 0
        self.problem = ""

    def see(self, member: tar.Member, offsets: Offsets) -> None:
        offset = member.header_offset
        try:
            begins = self.grouping.begins(member.name, offset, member.kind is tar.MemberType.FILE)
        except FormatError as error:
            self.problem = str(error)
            return
        if not begins:
            return
        found = self.found
        if found < len(offsets) and offsets[found] == offset:
            self.found = found + 1
        elif found >= len(offsets) - 1:
            self.problem = f"{counted(len(offsets) - 1)} in it, and the tar goes on with another at byte {offset}"
        else:
            self.problem = f"sample {found} is at byte {offsets[found]} in it, and in the tar at byte {offset}"

    def finish(self, offsets: Offsets, end: int) -> None:
        try:
            self.grouping.finish()
        except FormatError as error:
            self.problem = str(error)
            return
        if self.found < len(offsets) and offsets[self.found] < end:
            self.problem = f"sample {self.found} is at byte {offsets[self.found]} in it, where none begins in the tar"


def _judge_tar(index: str, offsets: Offsets, source: StoredFile, size: int) -> Verdict:
    candidates = [_Candidate(dialect) for dialect in _GROUPED]
    live = candidates
    end = 0
    for number, member in enumerate(tar.members(source.read, size)):
        if number % _REPORT_EVERY == 0:
            reached(member.offset, size)
        if member.kind is tar.MemberType.GARBAGE:
            raise FormatError("the bytes after the end of the archive are not a tar", offset=member.offset)
        for candidate in live:
            candidate.see(member, offsets)
        live = [candidate for candidate in live if not candidate.problem]
        end = min(member.end, size)
    for candidate in live:
        candidate.finish(offsets, end)
    fitting = {candidate.dialect: candidate.found for candidate in live if not candidate.problem}
    if not fitting:
        best = max(candidates, key=lambda candidate: candidate.found)
        return Verdict(index, IndexState.STALE, best.problem)
    samples = next(iter(fitting.values()))
    extra = len(offsets) - samples
    readers = frozenset(fitting) if extra == 1 else frozenset(fitting) & {Dialect.NEMO, Dialect.MEMBERS}
    if not readers:
        message = f"{counted(samples)}, and then {extra} numbers more, where its readers need one"
        return Verdict(index, IndexState.DAMAGED, message)
    named = ", ".join(_READERS[dialect] for dialect in _GROUPED if dialect in readers)
    without = "" if extra == 1 else f", and then {extra or 'no'} numbers more, so not for Lhotse and Energon"
    return Verdict(index, IndexState.FITS, f"{counted(samples)}, for {named}{without}", samples, readers)


def _judge_strict(index: str, stored: bytes, source: StoredFile, size: int) -> Verdict:
    """Verify an index of NeMo's v2: its companion, the tar that the companion describes, and the offsets."""
    companion = DATA.open(index + COMPANION_SUFFIX)
    try:
        if companion.size > _COMPANION_SIZE_MAX:
            return Verdict(index, IndexState.DAMAGED, f"its companion {COMPANION_SUFFIX} has {companion.size} bytes")
        expected = parse_companion(companion.read(0, companion.size), stored)
    except NotFoundError:
        return Verdict(index, IndexState.DAMAGED, f"its companion {index}{COMPANION_SUFFIX} is missing")
    except FormatError as error:
        return Verdict(index, IndexState.DAMAGED, f"{COMPANION_SUFFIX}: {error}")
    found = DATA.stat(source.path).fingerprint
    if expected.size != size or (expected.identity is None and expected.mtime_ns != found.mtime_ns):
        return Verdict(index, IndexState.STALE, "the tar has another size or time than when it was made")
    starts = _strict_starts(grouping(Dialect.WDS_V2), source, size)
    for ordinal, offset in enumerate(parse(stored, size)[:-1].tolist()):
        if (start := next(starts, None)) != offset:
            return Verdict(
                index, IndexState.STALE, f"sample {ordinal} is at byte {offset} in it, and in the tar at {start}"
            )
    if (start := next(starts, None)) is not None:
        return Verdict(index, IndexState.STALE, f"the tar goes on with a sample at byte {start}")
    readers = frozenset((Dialect.WDS_V2,))
    text = f"{counted(expected.samples)}, for NeMo's v2 where the tar is named {expected.path!r}"
    return Verdict(index, IndexState.FITS, text, expected.samples, readers)


def _strict_starts(group: Grouping, source: StoredFile, size: int) -> Iterator[int]:
    try:
        for member in tar.members(source.read, size):
            if group.begins(member.name, member.header_offset, member.kind is tar.MemberType.FILE):
                yield member.header_offset
        group.finish()
    except FormatError as error:
        error.at(source.path)
        raise


def counted(samples: int) -> str:
    """`1 sample`, `2,000 samples`."""
    return f"{samples:,} sample{'' if samples == 1 else 's'}"
