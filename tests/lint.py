"""Check what the texts of the checkout say: `python tests/lint.py`.

It is a part of `make lint`. Each file is read and parsed once, and then all rules look at it. A rule is a function that
gets all texts and yields faults.
"""

import argparse
import gc
import sys

from lint_rules.circles import circles
from lint_rules.class_names import class_names
from lint_rules.commands import commands
from lint_rules.distribution import distribution
from lint_rules.docstrings import docstrings
from lint_rules.pages import pages
from lint_rules.parameters import parameters
from lint_rules.rooms import flat_rooms, rooms, write_rooms
from lint_rules.skips import skips
from lint_rules.sleeps import sleeps
from lint_rules.source import read_sources
from lint_rules.words import words

RULES = (
    circles,
    class_names,
    commands,
    distribution,
    docstrings,
    flat_rooms,
    pages,
    parameters,
    rooms,
    skips,
    sleeps,
    words,
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check what the texts of the checkout say.")
    parser.add_argument("--write-rooms", action="store_true", help="correct the table of rooms in ARCHITECTURE.md")
    arguments = parser.parse_args()
    # A million nodes stay in memory until the end. To look for garbage among them takes as long as all else.
    gc.disable()
    sources = read_sources()
    if arguments.write_rooms:
        write_rooms(sources)
        return 0
    try:
        faults = sorted({fault for rule in RULES for fault in rule(sources)})
    except SyntaxError as error:
        print(f"{error.filename}:{error.lineno}: {error.msg}: correct it")
        return 1
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
