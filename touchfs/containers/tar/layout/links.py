"""Resolve the links in a tar to members.

A hard link names an earlier member; if several have that name, the last one before the link. A symbolic link is a path
relative to its own directory. It is resolved as in the unpacked tree: to the last member of that name, following links
to directories on the way. A link that leaves the archive, is dangling or forms a loop has no target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from touchfs.containers.tar.layout.members import Member, MemberType

# Linux's limits for one path: links on the way, bytes of a link's text; and a limit of components beyond real paths
_LINKS_MAX = 40
_LINK_SIZE_MAX = 4096
_PARTS_MAX = 1000


def link_targets(members: Iterable[Member]) -> dict[int, int | None]:
    """Return, for each link's position among the members, the position of the non-link member that it resolves to.

    None means no target. Only names and positions of the members are kept in memory.
    """
    places: dict[str, int] = {}  # by path, the last member there
    hard: dict[int, int | None] = {}
    symbolic: dict[int, str] = {}
    directories: dict[int, str] = {}  # by link, the directory that contains it
    for position, member in enumerate(members):
        path = _normal(member.name)
        if member.kind is MemberType.HARD_LINK:
            link = _normal(member.link)
            target = None if link is None else places.get(link)
            hard[position] = target if target is None else hard.get(target, target)
        elif member.kind is MemberType.SYMBOLIC_LINK:
            symbolic[position] = member.link
        elif member.kind is MemberType.GARBAGE:
            continue
        if position in hard or position in symbolic:
            directories[position] = member.name.rstrip("/").rpartition("/")[0]
        if path is not None:
            places[path] = position
    targets: dict[int, int | None] = {}
    for position, directory in directories.items():
        target = hard.get(position, position)
        if target in symbolic:
            target = _follow(directory, symbolic[target], places, hard, symbolic)
        targets[position] = target
    return targets


def _normal(name: str) -> str | None:
    parts: list[str] = []
    for part in name.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _follow(
    directory: str,
    link: str,
    places: Mapping[str, int],
    hard: Mapping[int, int | None],
    symbolic: Mapping[int, str],
) -> int | None:
    """Resolve a symbolic link part by part: `..` after a link means the parent of the link's target."""
    if link.startswith("/") or len(link) > _LINK_SIZE_MAX:
        return None
    ahead = f"{directory}/{link}".split("/")[::-1]
    walked = [""]  # the root, and each directory down to the current one
    links = 1
    for _ in range(_PARTS_MAX):
        if not ahead:
            here = places.get(walked[-1])
            return None if here is None else hard.get(here, here)
        part = ahead.pop()
        if part == "..":
            walked.pop()
            if not walked:
                return None
        elif part not in ("", "."):
            path = f"{walked[-1]}/{part}" if walked[-1] else part
            here = places.get(path)
            here = None if here is None else hard.get(here, here)
            if here is None or here not in symbolic:
                walked.append(path)
                continue
            link = symbolic[here]
            links += 1
            if links > _LINKS_MAX or link.startswith("/") or len(link) > _LINK_SIZE_MAX:
                return None
            ahead += link.split("/")[::-1]
    return None
