"""A shard that is a tar, such as WebDataset's: its members, under their own paths, grouped into samples.

Members with the same key are the fields of a sample. By WebDataset's rule the key is the path up to the first dot of
its last component, and the rest, in lower case, names the field; by WeNet's (`last-dot`) it is up to the last dot. The
members of a sample need not be adjacent, as they must be for a streaming reader. A member whose field its sample
already has begins another sample with the same key, so grouping hides nothing. Members without a key, such as `README`,
`.DS_Store` and `__info__/a.txt`, belong to no sample. They are shown, too, and all names keep their case.

Path components that are empty or `.` mean nothing and are not shown: `tar -C dir -cf x.tar .` begins each path with
`./`. The key keeps them.

A link is shown as the member that it points to. Members that cannot be shown are listed in `problems`, with their
offsets: a link that points outside the archive or to nothing, a device, bytes after the end of the archive, and damage,
after which nothing can be found if it is not that of one member. A directory is shown only if it contains something.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from touchfs.errors import FormatError
from touchfs.form.plain import BYTES, SPARSE
from touchfs.format import holes
from touchfs.format.tar.grouping import webdataset_split
from touchfs.format.tar.header import BLOCK
from touchfs.format.tar.links import link_targets
from touchfs.format.tar.members import Member, MemberType, ReadAhead, scan
from touchfs.media.duration import AudioInfo
from touchfs.progress import reached
from touchfs.sample import Field, Recording, StoredRecording, StoredSample, StoredSamples, UnmeasuredRecording
from touchfs.shard.options import FIRST_DOT, Options
from touchfs.shard.single import open_source
from touchfs.shard.tar_sound import SUFFIXES, measure
from touchfs.source.fingerprint import Files

_REPORT_EVERY = 256
_LINKS = (MemberType.HARD_LINK, MemberType.SYMBOLIC_LINK)
_WITHOUT_CONTENT = (MemberType.DIRECTORY, MemberType.METADATA)


def split_name(name: str, key_rule: str = FIRST_DOT) -> tuple[str, str] | None:
    """Split the name of a member into key and extension; None if it has no key by WebDataset's rule."""
    found = webdataset_split(name)
    if found is None or key_rule == FIRST_DOT:
        return found
    key, _, extension = name.rpartition(".")
    return key, extension


class TarShard(StoredSamples):
    """The samples of the tar at `path`. Reads only headers, and keeps the name and offset of each member."""

    index_size = 0

    def __init__(self, path: str, options: Options, files: Files) -> None:
        self.path = path
        self.files = files
        (self._name,) = files
        self.size = self.files[self._name].size
        self._file = open_source(path, self._name, self.files)
        self.problems: list[str] = []
        self._sounds: dict[int, AudioInfo] = {}  # by the offset of the data
        try:
            self._members = self._scan()
        except BaseException:
            self.close()
            raise
        self._others: list[Member] = []
        self._samples = self._group(options.key_rule)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._samples)

    def sample(self, ordinal: int) -> StoredSample:
        """The sample at an ordinal. Reads nothing."""
        key, fields = self._samples[ordinal]
        shown = {name: self._field(name, member, member.name[len(key) + 1 :]) for name, member in fields.items()}
        return StoredSample(key, ordinal, shown, recording=self._recording(fields, shown))

    @property
    def others(self) -> Iterator[tuple[str, Field]]:
        """See `ShardReader.others`."""
        return ((member.name, self._field(None, member)) for member in self._others)

    def _recording(self, members: Mapping[str, Member], fields: Mapping[str, Field]) -> Recording | None:
        """The first recording whose header has its length, else the first one."""
        for name, member in members.items():
            if (sound := self._sounds.get(member.offset)) is not None and member.name[-5:].lower().endswith(SUFFIXES):
                return StoredRecording.measured(fields[name], sound)
        return UnmeasuredRecording.first(fields.values())

    def _field(self, extension: str | None, member: Member, written: str | None = None) -> Field:
        name = extension or ""
        if member.pieces is None:
            return Field(name, self._name, member.offset, member.size, BYTES, extension, written=written)
        pieces = holes.pack(member.size, member.pieces)
        return Field(name, self._name, member.offset, member.stored, SPARSE, extension, detail=pieces, written=written)

    def _scan(self) -> list[Member]:
        """The files in the tar, each under its own name. A link becomes the file that it points to.

        Raises FormatError if not even the first member can be read: then this is no tar.
        """
        found: list[Member] = []
        try:
            ahead = ReadAhead(self._file.read, self.size)
            for member in scan(ahead):
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

    def _group(self, key_rule: str) -> list[tuple[str, dict[str, Member]]]:
        samples: list[tuple[str, dict[str, Member]]] = []
        last: dict[str, dict[str, Member]] = {}  # by key, the fields of its last sample
        for member in self._members:
            split = split_name(member.name, key_rule)
            if split is None:
                self._others.append(member)
                continue
            key, extension = split
            field = extension.lower()
            fields = last.get(key)
            if fields is None or field in fields:
                # Version 0.1 split names at the first dot after a letter of the last component, and kept their case.
                if key.endswith("/") or (fields is not None and fields[field].name != member.name):
                    self.regrouped += 1
                fields = last[key] = {}
                samples.append((key, fields))
            fields[field] = member
        self.regrouped += len(self._others)
        return samples


def _problem(member: Member) -> str:
    if member.kind is MemberType.GARBAGE:
        return f"{member.size} bytes after the end of the archive are not a tar"
    if member.kind in _LINKS:
        link = f"is a {member.kind.value} to {member.link!r}, which is not a file of the archive"
        return f"{_name(member)} {link}: not shown"
    return f"{_name(member)} {member.problem}: not shown"


def _name(member: Member) -> str:
    return repr(os.fsencode(member.name).decode("utf-8", "replace"))
