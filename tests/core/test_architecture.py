"""ARCHITECTURE.md says what each room is, and how large. `python test_architecture.py` writes the table anew."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = ROOT / "ARCHITECTURE.md"
HEADING = "|---|---|---|---|\n"
# So much larger or smaller a room may be than its row says: the number is for orientation.
LINES_TOLERATED = 0.15


def rooms() -> dict[str, tuple[int, int, str]]:
    """For each room: files, lines, and the first line of its docstring."""
    found = {}
    for package in (ROOT / "touchfs", ROOT / "mount" / "touchfs_mount"):
        for init in sorted(package.rglob("__init__.py")):
            files = list(init.parent.glob("*.py"))
            lines = sum(len(file.read_text().splitlines()) for file in files)
            docstring = ast.get_docstring(ast.parse(init.read_text())) or ""
            found[str(init.parent.relative_to(package.parent))] = len(files), lines, docstring.split("\n")[0]
    return found


def row(name: str, files: int, lines: int, what: str) -> str:
    return f"| `{name}/` | {files} | {lines} | {what} |\n"


def test_the_table_of_rooms_is_true():
    written = {}
    for line in DOCUMENT.read_text().partition(HEADING)[2].splitlines():
        _, name, files, lines, what, _ = (cell.strip() for cell in line.split("|", 5))
        written[name.strip("`/")] = int(files), int(lines), what
    found = rooms()
    assert written.keys() == found.keys()
    for name, (files, lines, what) in found.items():
        assert (written[name][0], written[name][2]) == (files, what)
        assert abs(written[name][1] - lines) <= LINES_TOLERATED * lines, name


def test_no_room_is_a_flat_list_of_many_files():
    """The command line has a file for each command."""
    assert [name for name, (files, *_) in rooms().items() if files > 16 and name != "touchfs/cli"] == []


if __name__ == "__main__":
    head = DOCUMENT.read_text().partition(HEADING)[0]
    DOCUMENT.write_text(head + HEADING + "".join(row(name, *facts) for name, facts in rooms().items()))
