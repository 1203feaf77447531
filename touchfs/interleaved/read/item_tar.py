"""A tar of interleaved samples: its members by name, and those of them that are the JSON of a sample.

Opening one reads headers only. Members are then read where they are, so each byte is read at most once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from touchfs.containers.tar.layout.header import BLOCK
from touchfs.containers.tar.layout.members import Member, MemberType, members
from touchfs.core.errors import FormatError, SourceError
from touchfs.interleaved.fetch.tar_members import member_content
from touchfs.interleaved.layout.source_ref import SourceRef, format_source_ref
from touchfs.interleaved.read.opened import OpenedShard
from touchfs.limits import too_long

log = logging.getLogger(__name__)


class ItemTar:
    """The tar at `path`, of a user's choice. `documents` are the members with the JSON of a sample, in order.

    Where several members have one name, images mean the last one. Raises what opening raises, and FormatError for a
    damaged tar.
    """

    def __init__(self, path: str, json_extensions: Iterable[str], storage_options: Mapping[str, Any]) -> None:
        self.path = path
        self._shard = OpenedShard(path, storage_options)
        try:
            found = self._scan()
        except (FormatError, SourceError) as error:
            self._shard.close()
            error.at(path)
            raise
        self.members = {member.name: member for member in found}
        endings = tuple(extension.lower() for extension in json_extensions)
        self.documents = [member for member in found if member.name.lower().endswith(endings)]
        stems = Counter(stem for stem, _ in {_split(member.name) for member in self.documents})
        self._shared = {stem for stem, count in stems.items() if count > 1}

    def close(self) -> None:
        """Close the file."""
        self._shard.close()

    @property
    def plain_path(self) -> str:
        """The path of the uncompressed tar: `path`, or that of its decompressed form."""
        return self._shard.plain_path

    def read(self, member: Member, limit: int) -> bytes:
        """Return the bytes of a member with JSON. Raises FormatError if they are over the limit, and SourceError."""
        if member.size > limit:
            raise FormatError(too_long("the JSON of the sample", limit), path=self.path, offset=member.header_offset)
        return bytes(member_content(self._shard, member).read(0, member.size))

    def sample_id(self, document: Member) -> str:
        """Return the id that a JSON member's name gives: its last component without the extension.

        If members in several directories would have the same id, it has the directory before it.
        """
        stem, directory = _split(document.name)
        return f"{directory}/{stem}" if directory and stem in self._shared else stem

    def source_ref(self, member: Member, frame: int | None = None, *, plain: bool = False) -> str:
        """Return the locator of a member, in the decompressed form of the tar if `plain`.

        Only a member that is one range of an uncompressed tar has its range in it.
        """
        is_range = (plain or self._shard.is_plain) and member.pieces is None
        path = self.plain_path if plain else self.path
        offset, size = (member.offset, member.size) if is_range else (None, None)
        return format_source_ref(SourceRef(path, member.name, offset, size, frame))

    def _scan(self) -> list[Member]:
        found = []
        end = 0
        for member in members(self._shard.read, self._shard.size):
            if member.kind is MemberType.GARBAGE:
                log.warning("%s: %d bytes after the end of the archive are not a tar", self.path, member.size)
            elif member.kind is MemberType.FILE:
                found.append(member)
            end = member.end
        if self._shard.size - end < BLOCK:
            log.warning("%s: the archive has no end mark: it may have been cut (at byte %d)", self.path, end)
        return found


def _split(name: str) -> tuple[str, str]:
    """The stem of a name and its directory, without components that mean nothing."""
    *directories, base = [part for part in name.split("/") if part not in ("", ".")] or [name]
    stem, dot, _ = base.rpartition(".")
    return stem if dot and stem else base, "/".join(directories)
