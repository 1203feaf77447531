"""What people install is `touchfs-shards`: on PyPI, `touchfs` is another project, with our import name."""

import re
from collections.abc import Iterator, Sequence

from lint_rules.source import Fault, Source

# An extra of it, an installation of it, or its metadata.
OTHER = re.compile(
    r"""(?<![\w.-])touchfs\[[a-z{]|pip3? install (?:-\S+ )*['"]?touchfs(?![\w-])|version\(["']touchfs["']\)"""
)
OWN = ("tests/lint_rules/distribution.py", "tests/core/test_lint.py")


def distribution(sources: Sequence[Source]) -> Iterator[Fault]:
    for source in sources:
        for number, line in enumerate(source.text.splitlines(), 1) if source.path not in OWN else ():
            if OTHER.search(line):
                yield Fault(source.path, number, "names another project: our distribution is `touchfs-shards`")
