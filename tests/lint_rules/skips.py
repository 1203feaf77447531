"""No test is skipped: what is not installed makes its tests fail, or nobody would notice that they never run."""

import re
from collections.abc import Iterator, Sequence

from lint_rules.source import Fault, Source, tests

WORDS = re.compile(r"importorskip|pytest\.skip|skipif|mark\.skip|xfail")
# This file has the words.
OWN = "tests/lint_rules/skips.py"


def skips(sources: Sequence[Source]) -> Iterator[Fault]:
    for source in tests(sources):
        if source.path != OWN and WORDS.search(source.text):
            for number, line in enumerate(source.text.splitlines(), 1):
                if found := WORDS.search(line):
                    yield Fault(source.path, number, f"{found[0]} skips a test: let it fail, or delete it")
