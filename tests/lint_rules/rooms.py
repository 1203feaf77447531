"""ARCHITECTURE.md says what each folder of the library is, and how large. No room is a flat list of many files."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lint_rules.source import ROOT, Fault, Source, code

PAGE = "ARCHITECTURE.md"
HEADING = "|---|---|---|---|\n"
WRITE = "`.venv/bin/python tests/lint.py --write-rooms` corrects the table"
# A room may be this much larger or smaller than its row says: the number is for orientation.
LINES_TOLERATED = 0.15
MOST_FILES = 16
LIBRARY = "touchfs"
# The command line has a file for each command.
FLAT = {"touchfs/cli"}


class Room(NamedTuple):
    """A row of the table, or what it should be."""

    files: int
    lines: int
    what: str


def rooms_of(sources: Sequence[Source]) -> dict[str, Room]:
    """Each room by its name: its files, their lines, and the first line of its docstring."""
    inside = defaultdict(list)
    for source in code(sources):
        inside[source.room.removeprefix("mount/")].append(source)
    return described(inside)


def folders_of(sources: Sequence[Source]) -> dict[str, Room]:
    """The folders of the library, each with all the rooms in it, the library's own files, and the daemon as a whole."""
    inside = defaultdict(list)
    for source in code(sources):
        package, *folders = source.room.removeprefix("mount/").split("/")
        inside["/".join([package, *(folders[:1] if package == LIBRARY else ())])].append(source)
    return described(inside)


def described(inside: Mapping[str, Sequence[Source]]) -> dict[str, Room]:
    found = {}
    for name, files in sorted(inside.items()):
        for source in files:
            if source.path.removeprefix("mount/") == f"{name}/__init__.py":
                lines = sum(len(each.text.splitlines()) for each in files)
                what = (ast.get_docstring(source.tree) or "").split("\n")[0]
                found[name] = Room(len(files), lines, what)
    return found


def rows_of(page: str) -> dict[str, tuple[int, Room]]:
    """Each row of the table by the name of its room, and the line that it is in."""
    head, heading, table = page.partition(HEADING)
    found = {}
    for number, line in enumerate(table.splitlines(), (head + heading).count("\n") + 1):
        _, name, files, lines, what, _ = (cell.strip() for cell in line.split("|", 5))
        found[name.strip("`/")] = number, Room(int(files), int(lines), what)
    return found


def rooms(sources: Sequence[Source]) -> Iterator[Fault]:
    found = folders_of(sources)
    written = rows_of(next((each.text for each in sources if each.path == PAGE), ""))
    for name in found.keys() - written.keys():
        yield Fault(PAGE, 1, f"has no row for the room {name}/: {WRITE}")
    for name, (line, row) in written.items():
        if name not in found:
            yield Fault(PAGE, line, f"{name}/ is not a room: {WRITE}")
            continue
        room = found[name]
        if (row.files, row.what) != (room.files, room.what):
            yield Fault(PAGE, line, f"{name}/ has {room.files} files, and its docstring is {room.what!r}: {WRITE}")
        if abs(row.lines - room.lines) > LINES_TOLERATED * room.lines:
            yield Fault(PAGE, line, f"{name}/ has {room.lines} lines, not {row.lines}: {WRITE}")


def flat_rooms(sources: Sequence[Source]) -> Iterator[Fault]:
    for name, room in rooms_of(sources).items():
        if room.files > MOST_FILES and name not in FLAT:
            message = f"the room has {room.files} files, and {MOST_FILES} is the most: move what belongs together down"
            room_path = f"mount/{name}" if name.startswith("touchfs_mount") else name
            yield Fault(f"{room_path}/__init__.py", 1, message)


def write_rooms(sources: Sequence[Source]) -> None:
    """Correct the table of ARCHITECTURE.md."""
    page = ROOT / PAGE
    head = page.read_text(encoding="utf-8").partition(HEADING)[0]
    found = folders_of(sources).items()
    rows = (f"| `{name}/` | {files} | {lines} | {what} |\n" for name, (files, lines, what) in found)
    page.write_text(head + HEADING + "".join(rows), encoding="utf-8")
