"""The pages of a server as documents. They load style, script and pictures from that server, and nothing else.

Each answer has a nonce of its own, which style and script need: so no file of the data is run as a script, though it
comes from the same server.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import cache

from touchfs.core.errors import MissingExtraError
from touchfs.explore.html import environment, markup, section, style_sheet
from touchfs.explore.linked import OWN, ErrorList, OverviewPage, SampleList, SamplePage, list_url

_FILES = os.path.join(os.path.dirname(__file__), "static")
_NAMES = ("icon.svg", "player.js", "search.js", "served.css")
_PLACES = (("Overview", ""), ("Samples", f"{OWN}samples"), ("Files", "?list"), ("Errors", f"{OWN}errors"))


@cache
def static_files() -> dict[str, bytes]:
    """Style, script and icon, by name."""
    files = {"page.css": style_sheet().encode()}
    for name in _NAMES:
        with open(os.path.join(_FILES, name), "rb") as file:
            files[name] = file.read()
    return files


@cache
def static_place() -> str:
    """The URL of the directory of these, which changes with them: so browsers may keep them for ever."""
    digest = hashlib.blake2b(b"\0".join(static_files().values()), digest_size=8)
    return f"{OWN}static/{digest.hexdigest()}/"


def compile_pages() -> None:
    """Compile the templates, which takes a sixth of a second, before the first page is asked for."""
    with suppress(MissingExtraError):  # the first page says so
        for name in environment().list_templates(["html"]):
            environment().get_template(name)


def policy(nonce: str) -> str:
    """The policy (CSP) of a page with this nonce."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self'; media-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def served(page: OverviewPage | SampleList | SamplePage | ErrorList, dataset: str, root: str, nonce: str) -> str:
    """A page as a document of a server whose root is at the relative URL `root`. Raises MissingExtraError."""
    values: dict[str, object] = {"page": page}
    match page:
        case OverviewPage():
            template, title, here = "overview", page.page.title, "Overview"
            values["section"] = markup(section(page.page, 1, root))
        case SampleList():
            template, title, here = "samples", "Samples", "Samples"
        case SamplePage():
            template, title, here = "sample", page.page.title, "Samples"
            values["section"] = markup(section(page.page, 1, root))
        case ErrorList():
            template, title, here = "errors", "Errors", "Errors"
    return (
        environment()
        .get_template(f"{template}.html")
        .render(
            **values,
            title=title,
            here=here,
            dataset=dataset,
            root=root,
            nonce=nonce,
            static=static_place(),
            places=_PLACES,
            list_url=list_url,
        )
    )
