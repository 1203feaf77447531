"""Links of the README and of `docs/` lead somewhere, some lead to every page, and pages that code names are there."""

import posixpath
import re
from collections.abc import Iterator, Sequence

from lint_rules.source import ROOT, Fault, Source

README = "README.md"
BLOCK = re.compile(r"^```\w*\n.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^]]*\]\(([^):]*)\)")
NAMED = re.compile(r"(?<![\w/])docs/[a-z-]+\.md")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """For each heading of a page: what a link to it says after the `#`."""
    headings = HEADING.findall(BLOCK.sub("", text))
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def pages(sources: Sequence[Source]) -> Iterator[Fault]:
    checked = {each.path: each for each in sources if each.path == README or _is_page(each)}
    linked = {README}
    for path, page in checked.items():
        for found in LINK.finditer(page.text):
            line = page.text.count("\n", 0, found.start()) + 1
            name, _, anchor = found[1].partition("#")
            target = posixpath.normpath(posixpath.join(page.room, name)) if name else path
            if target != path:
                linked.add(target)
            if target not in checked and not (ROOT / target).exists():
                yield Fault(path, line, f"the link {found[1]} leads nowhere: correct it")
            elif anchor:
                text = checked[target].text if target in checked else (ROOT / target).read_text(encoding="utf-8")
                if anchor not in anchors(text):
                    yield Fault(path, line, f"{target} has no heading for the link {found[1]}: correct it")
    for path in checked.keys() - linked:
        yield Fault(README, 1, f"no link leads to {path}: add one")
    for source in sources:
        is_ours = source.path.startswith(("touchfs/", "mount/")) and source.path.endswith(".py")
        for number, line in enumerate(source.text.splitlines() if is_ours else (), 1):
            for name in NAMED.findall(line):
                if name not in checked and not (ROOT / name).exists():
                    yield Fault(source.path, number, f"there is no {name}: correct it")


def _is_page(source: Source) -> bool:
    return source.path.startswith("docs/") and source.path.endswith(".md")
