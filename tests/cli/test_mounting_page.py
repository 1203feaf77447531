"""docs/mounting.md lists all words of `-o`, and its lines for fstab and autofs can be mounted.

`python test_mounting_page.py` writes the list anew.
"""

import re
from pathlib import Path

import click
import pytest

from touchfs.cli.mount import command

PAGE = Path(__file__).parent.parent.parent / "docs" / "mounting.md"
HEAD, END = "| word | meaning |\n|---|---|\n", "\nThose with `=` take a value.\n"


def rows() -> str:
    """The options as words, with their help."""
    shown = []
    for word, option in command.words().items():
        if not option.hidden:
            meaning = re.sub(r"\s+", " ", option.help).replace("|", "\\|")
            shown.append(f"| `{word}{'' if option.is_flag else '='}` | {meaning} |\n")
    return "".join(sorted(shown))


def blocks(kind: str) -> list[str]:
    (block,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [line for line in block.splitlines() if not line.startswith("#")]


def test_the_page_lists_every_word():
    _, _, after = PAGE.read_text().partition(HEAD)
    assert after.partition(END)[0] == rows(), "python tests/cli/test_mounting_page.py writes it"


@pytest.mark.parametrize("line", blocks("fstab"))
def test_lines_of_fstab(line):
    source, point, kind, options, *numbers = line.split()
    assert (kind in ("touchfs", "fuse.touchfs"), numbers) == (True, ["0", "0"])
    assert command.make_context("mount.touchfs", [source, point, "-o", options]).params["mountpoint"] == point


def test_lines_of_autofs():
    master, *entries = blocks("automount")
    assert re.fullmatch(r"/datasets +/etc/auto.datasets +--timeout=600", master)
    for entry in entries:
        name, kind, options, source = re.fullmatch(r"(\S+) +-fstype=([^,]*),(\S*) +:(\S+)", entry).groups()
        assert kind in ("touchfs", "fuse.touchfs")
        assert command.make_context(kind, [source, name, "-o", options]).params["path"] == source


def test_words_of_mount_that_the_page_names_are_accepted():
    text = PAGE.read_text().partition("| words | meaning |")[2].partition(HEAD)[0]
    for row, is_refused in re.findall(r"^\| (`.*?) \| (refused)?", text, re.MULTILINE):
        for word in re.findall(r"`([^`]+)`", row):
            arguments = ["a", "b", "-o", word.replace("…", "y").replace("NAME=VALUE", "TOUCHFS_TEST=1")]
            if is_refused:
                with pytest.raises(click.UsageError, match="cannot be used"):
                    command.make_context("mount", arguments)
            else:
                command.make_context("mount", arguments)


if __name__ == "__main__":
    before, _, after = PAGE.read_text().partition(HEAD)
    PAGE.write_text(before + HEAD + rows() + END + after.partition(END)[2])
