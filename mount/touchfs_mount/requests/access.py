"""Access for other users (`--allow-other`): a user may read a file of the mount if that user may read it at the source.

A file shows the owner, the group and the read bits of the shard's files that it comes from. If these differ, it shows
the strictest combination: a user with access to it may read each of them, and search each directory on the way from
DATASET to it. The directories of a shard are readable for the users who may read its files, because names in them are
keys. The root of the mount is readable for the users who can search DATASET and each directory above it. With an audio
root, users must also be able to search that, and of a table the directory of videos beside it; the files below are not
looked at one by one.

Only modes and groups are used. Permissions that an access control list adds are ignored, so fewer users get access.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import NamedTuple

from touchfs.core.location import Location
from touchfs.dataset import Dataset
from touchfs.tables.rows.asset import ASSETS
from touchfs.tree.inode import ROOT, unpack

_ALL = 0o444
_OWNER, _GROUP, _OTHERS = 0o400, 0o040, 0o004
_ACL = "system.posix_acl_access"
# A copy of a directory keeps the mode, and its owner must be able to remove the contents.
_DIRECTORY, _FILE = 0o755, 0o444


class Access(NamedTuple):
    """The access of the owner `user`, the group, and others: a class has access if its bit of `0o444` is in `mode`."""

    user: int
    group: int
    mode: int


class Ownership(NamedTuple):
    """The owner and group of entries, and the mode for each kind of entry (`stat.S_IFREG` etc.), for `stat`."""

    user: int
    group: int
    modes: Mapping[int, int]


def ownership_of(access: Access, *, fmask: int = 0, dmask: int = 0) -> Ownership:
    """The ownership and modes that grant an access: of files without the bits of `fmask`, of directories `dmask`."""
    classes = sum(0o7 << shift for shift in (0, 3, 6) if access.mode >> shift & 0o4)
    return Ownership(
        access.user,
        access.group,
        {
            stat.S_IFDIR: stat.S_IFDIR | _DIRECTORY & classes & ~dmask,
            stat.S_IFREG: stat.S_IFREG | _FILE & classes & ~fmask,
            stat.S_IFLNK: stat.S_IFLNK | 0o777,
        },
    )


_WORLD_READABLE = Access(os.geteuid(), os.getegid(), _ALL)
_OWNER_ONLY = Access(os.geteuid(), os.getegid(), _OWNER)
OUR_OWNERSHIP = ownership_of(_WORLD_READABLE)
# The users who may always do what the mount's owner may.
OWNER_UIDS = frozenset({0, os.geteuid()})


@dataclass(frozen=True, slots=True)
class Modes:
    """The ownership and modes of entries: of the root, of each shard's files by shard id, and of others.

    `hides` is true if some users may not read all shards.
    """

    root: Ownership = OUR_OWNERSHIP
    others: Ownership = OUR_OWNERSHIP
    shards: Mapping[int, Ownership] = field(default_factory=dict)
    hides: bool = False

    def of(self, inode: int) -> Ownership:
        return self.root if inode == ROOT else self.shards.get(unpack(inode)[1], self.others)

    def of_keys(self) -> Ownership:
        """The ownership of files and directories with keys of all shards. If shards are hidden, others can look up a
        name in such a directory, but read neither it nor a file.
        """
        modes = {kind: mode & ~(_GROUP | _OTHERS) for kind, mode in self.others.modes.items()}
        return self.others._replace(modes=modes) if self.hides else self.others

    def for_us_and_root(self) -> Modes:
        """The same with a root that nobody else can search: `--allow-root`."""
        return replace(self, root=ownership_of(_OWNER_ONLY))


DEFAULT_MODES = Modes()


def fixed(user: int | None, group: int | None, umask: int, fmask: int | None = None, dmask: int | None = None) -> Modes:
    """The same owner, group and mode bits for all entries: `--uid`, `--gid`, `--umask`; of files and directories other
    masks, if given.
    """
    access = Access(os.geteuid() if user is None else user, os.getegid() if group is None else group, _ALL)
    fmask, dmask = (umask if each is None else each for each in (fmask, dmask))
    ownership = ownership_of(access, fmask=fmask, dmask=dmask)
    return Modes(ownership, ownership)


class SourceModes(NamedTuple):
    """The ownership of the root, and of shards by their positions in the dataset."""

    root: Ownership
    shards: list[Ownership]
    hides: bool

    def modes(self, shard_ids: Sequence[int]) -> Modes:
        """The same by shard id; `shard_ids` are in the order of the dataset."""
        return Modes(self.root, OUR_OWNERSHIP, dict(zip(shard_ids, self.shards, strict=True)), self.hides)


def read_source_modes(dataset: Dataset) -> SourceModes:
    """The ownership according to the source's files now. Only we get access to a shard that cannot be examined, for
    example because its file system does not answer.
    """
    source = Location.of(dataset.source).resolved
    path_to_source = [*_ancestors(source), *([source] if os.path.isdir(source) else [])]
    # Fingerprints have neither modes nor lists of access. Directories, and lists of Kaldi's, belong to many shards.
    search_access = cache(lambda directory: _access_at(directory, 0o111))
    read_access = cache(lambda path: _access_at(path, _ALL))
    known: dict[Access, Ownership] = {}
    shards = []
    audio_root = dataset.limits.audio_root
    to_audio = set[str]()
    if audio_root is not None:
        location = Location.of(audio_root)
        real = location.resolved  # nobody can search a URL
        to_audio = {real} if location.is_url else {real, *_ancestors(real)}
    for shard in dataset.listed:
        if shard.path in dataset.unseen:  # a stat of it might block for ever
            shards.append(known.setdefault(_OWNER_ONLY, ownership_of(_OWNER_ONLY)))
            continue
        files = [_real(path) for path in shard.known.file_paths]
        between = {each for directory in map(os.path.dirname, files) for each in (directory, *_ancestors(directory))}
        between |= to_audio
        assets = _real(os.path.join(os.path.dirname(shard.path), ASSETS))
        if shard.known.is_table and os.path.isdir(assets):
            between |= {assets, *_ancestors(assets)}
        found = list(map(read_access, files))
        access = strictest([*found, *map(search_access, sorted(between.difference(path_to_source), key=len))])
        if access is None:  # all users may read: the owner and the group are only displayed
            access = found[0] if len({each[:2] for each in found}) == 1 else _WORLD_READABLE
        shards.append(known.setdefault(access, ownership_of(access)))
    root = strictest(list(map(search_access, sorted(path_to_source, key=len, reverse=True)))) or _WORLD_READABLE
    return SourceModes(ownership_of(root), shards, hides=any(access.mode != _ALL for access in known))


def strictest(found: Iterable[Access]) -> Access | None:
    """An access that excludes each user whom one of these excludes, but always includes us. None if all include all."""
    limits = list(dict.fromkeys(access for access in found if access.mode != _ALL))
    if not limits:
        return None
    access = limits[0]
    if len(limits) > 1:
        users = [limit.user for limit in limits if all(_allows_user(each, limit.user) for each in limits)]
        groups = [limit.group for limit in limits if all(_allows_group(each, limit.group) for each in limits)]
        others = all(limit.mode & (_GROUP | _OTHERS) == _GROUP | _OTHERS for limit in limits)
        mode = _OWNER | (_GROUP if groups else 0) | (_OTHERS if others else 0)
        access = Access(users[0] if users else os.geteuid(), groups[0] if groups else os.getegid(), mode)
    if not _allows_user(access, os.geteuid()):
        access = access._replace(user=os.geteuid(), mode=access.mode | _OWNER)
    return access


def _allows_user(access: Access, user: int) -> bool:
    if user == 0:
        return True
    if user == access.user:
        return bool(access.mode & _OWNER)
    return bool(access.mode & (_GROUP if access.group in _groups_of(user) else _OTHERS))


def _allows_group(access: Access, group: int) -> bool:
    return bool(access.mode & _GROUP) and (group == access.group or bool(access.mode & _OTHERS))


@cache
def _groups_of(user: int) -> frozenset[int]:
    if user == os.geteuid():
        return frozenset({*os.getgroups(), os.getegid()})
    with suppress(KeyError):
        person = pwd.getpwuid(user)
        return frozenset(os.getgrouplist(person.pw_name, person.pw_gid))
    return frozenset()


def _access_at(path: str, bits: int) -> Access:
    """The access of the classes of users that have a permission bit of `bits` for a path; ours alone if it fails."""
    try:
        found = os.stat(path)
        has_acl = _ACL in os.listxattr(path)
    except OSError:
        return _OWNER_ONLY
    allowed = sum(_OTHERS << shift for shift in (0, 3, 6) if found.st_mode & bits & 0o7 << shift)
    return Access(found.st_uid, found.st_gid, allowed & ~_GROUP if has_acl else allowed)


def _real(path: str) -> str:
    directory, name = os.path.split(path)
    path = os.path.join(_real_directory(directory), name)
    return os.path.realpath(path) if os.path.islink(path) else path


@lru_cache(1)
def _real_directory(path: str) -> str:
    """Cached for the last directory, as a shard's files are usually in the same one."""
    return os.path.realpath(path)


def _ancestors(path: str) -> list[str]:
    directories = []
    while (directory := os.path.dirname(path)) != path:
        directories.append(path := directory)
    return directories
