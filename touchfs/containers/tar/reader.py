"""A shard that is a tar, such as WebDataset's: `touchfs.containers.tar.samples` groups its members into samples.

A link is shown as the member that it points to. Members that cannot be shown are listed in `problems`, with their
offsets: a link that points outside the archive or to nothing, a device, bytes after the end of the archive, and damage,
after which nothing can be found if it is not that of one member. A directory is shown only if it contains something.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from touchfs.containers.tar.adopted.adopt import adopted_members
from touchfs.containers.tar.layout.header import BLOCK
from touchfs.containers.tar.layout.links import link_targets
from touchfs.containers.tar.layout.members import Member, MemberType, ReadAhead, bounded, scan
from touchfs.containers.tar.samples import ArchiveShard
from touchfs.containers.tar.tar_sound import SUFFIXES, heads_prefetched, measure
from touchfs.core.errors import FormatError
from touchfs.core.progress import reached
from touchfs.form.plain import BYTES, SPARSE
from touchfs.format import holes
from touchfs.media.duration import AudioInfo
from touchfs.media.extensions import is_recording
from touchfs.shard.options import Options
from touchfs.shard.sample import Field, SampleRun, StoredSample
from touchfs.shard.single import SingleFile
from touchfs.source.fingerprint import Files

_REPORT_EVERY = 256
_RUN_SAMPLES = 1 << 13
_LINKS = (MemberType.HARD_LINK, MemberType.SYMBOLIC_LINK)
_WITHOUT_CONTENT = (MemberType.DIRECTORY, MemberType.METADATA)


class TarShard(SingleFile, ArchiveShard[Member]):
    """The samples of the tar at `path`. Reads only headers, and keeps the name and offset of each member.

    With `adopt`, it takes the members from an index of another tool, if one beside the tar fits.
    """

    def __init__(self, path: str, options: Options, files: Files, *, adopt: bool = False) -> None:
        (name,) = files
        SingleFile.__init__(self, path, name, files)
        self.problems: list[str] = []
        self._sounds: dict[int, AudioInfo] = {}  # by the offset of the data
        try:
            adopted = adopted_members(path, self._file, options.limits) if adopt else None
            members = self._scan(adopted, options.limits.members)
        except BaseException:
            self.close()
            raise
        ArchiveShard.__init__(self, members, options.key_rule)

    def runs(self, ordinals: range) -> Iterator[StoredSample | SampleRun]:
        """See `StoredSamples.runs`. Samples without a recording are alike if their files have the same extensions."""
        if any(member.pieces is not None for _, members in self._samples for member in members.values()):
            yield from self.samples(ordinals)
            return
        alike: dict[tuple[str, ...], tuple[Field, ...] | None] = {}
        keys, spans, fields = list[str](), array("q"), None
        for ordinal in ordinals:
            key, members = self._samples[ordinal]
            after = len(key) + 1
            written = tuple([member.name[after:] for member in members.values()])
            if written not in alike:
                alike[written] = self._fields_alike(written)
            own = alike[written]
            if keys and fields is not None and (own is not fields or len(keys) == _RUN_SAMPLES):
                yield _run(ordinal, keys, fields, spans)
                keys, spans = [], array("q")
            fields = own
            if own is None:
                yield self.sample(ordinal)
                continue
            keys.append(key)
            for member in members.values():
                spans.append(member.offset)
                spans.append(member.size)
        if fields is not None:
            yield _run(ordinals.stop, keys, fields, spans)

    def _fields_alike(self, written: Iterable[str]) -> tuple[Field, ...] | None:
        """The fields of samples whose files have these extensions, without places; None if one is a recording."""
        if any(map(is_recording, written)):
            return None
        names = [extension.lower() for extension in written]
        fields = zip(names, written, strict=True)
        return tuple(Field(name, self._name, 0, 0, BYTES, name, written=each) for name, each in fields)

    def _sound(self, member: Member) -> AudioInfo | None:
        """What its header says; only by a name of its own, as a link may have another one."""
        return self._sounds.get(member.offset) if member.name[-5:].lower().endswith(SUFFIXES) else None

    def _field(self, extension: str | None, member: Member, written: str | None = None) -> Field:
        name = extension or ""
        if member.pieces is None:
            return Field(name, self._name, member.offset, member.size, BYTES, extension, written=written)
        pieces = holes.pack(member.size, member.pieces)
        return Field(name, self._name, member.offset, member.stored, SPARSE, extension, detail=pieces, written=written)

    def _scan(self, adopted: Sequence[Member] | None, limit: int) -> list[Member]:
        """The files in the tar, each under its own name. A link becomes the file that it points to. They take up to
        `limit` bytes of memory.

        Raises FormatError if not even the first member can be read: then this is no tar.
        """
        found: list[Member] = []
        try:
            ahead = ReadAhead(self._file.read, self.size)
            scanned = scan(ahead) if adopted is None else heads_prefetched(adopted, self._file)
            for member in bounded(scanned, limit):
                found.append(member)
                if member.name[-5:].lower().endswith(SUFFIXES) and (sound := measure(member, ahead)) is not None:
                    self._sounds[member.offset] = sound
                if len(found) % _REPORT_EVERY == 0:
                    reached(member.end, self.size)
        except FormatError as error:
            if not found:
                raise
            self.problems.append(f"{error.at(self.path)}; what comes after it cannot be found")
        else:
            end = found[-1].end if found else 0
            if self.size - end < BLOCK and not (found and found[-1].kind is MemberType.GARBAGE):
                self.problems.append(f"the archive has no end mark: it may have been cut (at byte {end})")
        targets = link_targets(found) if any(member.kind in _LINKS for member in found) else {}
        shown = []
        for position, member in enumerate(found):
            target = found[place] if (place := targets.get(position)) is not None else member
            if target.kind is MemberType.FILE:
                shown.append(member if target is member else target._replace(name=member.name))
                if member.problem:
                    self.problems.append(f"{_name(member)} {member.problem} (at byte {member.header_offset})")
            elif target.kind not in _WITHOUT_CONTENT or member.kind in _LINKS:
                self.problems.append(f"{_problem(member)} (at byte {member.header_offset})")
        return shown


def _run(end: int, keys: Sequence[str], fields: Sequence[Field], spans: array[int]) -> SampleRun:
    places = np.frombuffer(spans, np.int64).reshape(len(keys), len(fields), 2)
    return SampleRun(end - len(keys), keys, fields, places)


def _problem(member: Member) -> str:
    if member.kind is MemberType.GARBAGE:
        return f"{member.size} bytes after the end of the archive are not a tar"
    if member.kind in _LINKS:
        link = f"is a {member.kind.value} to {member.link!r}, which is not a file of the archive"
        return f"{_name(member)} {link}: not shown"
    return f"{_name(member)} {member.problem}: not shown"


def _name(member: Member) -> str:
    return repr(os.fsencode(member.name).decode("utf-8", "replace"))
