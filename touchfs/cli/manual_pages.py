"""touchfs setup man

The package click-man was tried. It writes 1 page of 49, because our commands are imported when they are needed; it cuts
summaries at 45 characters, fills the lines of examples and of exit statuses, and has no section 8.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib.metadata import version

import click

from touchfs.cli.main import SECTIONS, group
from touchfs.cli.mount_helper import command as mount_helper
from touchfs.core.extras import DISTRIBUTION

_COMMANDS_SECTION, _ADMINISTRATION_SECTION = "1", "8"
_VERBATIM = "\b"  # click's mark of a paragraph that is not wrapped


def manual_pages() -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each page."""
    yield f"{mount_helper.name}.8", _page(_context(mount_helper, "mount.touchfs"), _ADMINISTRATION_SECTION)
    contexts = [_context(group, "touchfs")]
    while contexts:
        context = contexts.pop()
        yield f"{_page_name(context)}.1", _page(context, _COMMANDS_SECTION)
        contexts += _subcommands(context)


def _subcommands(context: click.Context) -> list[click.Context]:
    parent = context.command
    if not isinstance(parent, click.Group):
        return []
    found = [(name, parent.get_command(context, name)) for name in parent.list_commands(context)]
    return [_context(each, name, context) for name, each in found if each is not None and not each.hidden]


def _context(shown: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    return click.Context(shown, parent, name, **shown.context_settings)


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _page(context: click.Context, section: str) -> str:
    shown = context.command
    name = _page_name(context)
    title = f"{_quoted(name.upper())} {section}"
    manual = "User Commands" if section == _COMMANDS_SECTION else "System Administration"
    lines = [f'.TH {title} "" "touchfs {version(DISTRIBUTION)}" "{manual}"', ".SH NAME"]
    lines.append(f"{_escaped(name)} \\- {_escaped(shown.get_short_help_str(1000).rstrip('.'))}")
    usage = " ".join(shown.collect_usage_pieces(context))
    lines += [".SH SYNOPSIS", f"\\fB{_escaped(context.command_path)}\\fR {_escaped(usage)}"]
    lines += [".SH DESCRIPTION", *_description(inspect.cleandoc(shown.help or ""))]
    options = [each for each in shown.get_params(context) if isinstance(each, click.Option)]
    records = [record for each in options if (record := each.get_help_record(context))]
    lines += [".SH OPTIONS", *_definitions(records)]
    children = {each.info_name or "": each.command.get_short_help_str(1000) for each in _subcommands(context)}
    sections = {f".SS {title}": names for title, names in SECTIONS.items()} if shown is group else {"": children}
    lines += [".SH COMMANDS"] if children else []
    for title, names in sections.items():
        lines += [*([title] if title else []), *_definitions([(name, children[name]) for name in names])]
    others = [_page_name(each) for each in ([context.parent] if context.parent else _subcommands(context))]
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{_escaped(other)}\\fR(1)" for other in others or ["touchfs"])]
    return "\n".join(lines) + "\n"


def _description(help_text: str) -> Iterator[str]:
    """The paragraphs of a help. A verbatim one that begins with `Title:` is a section."""
    is_first = True
    for paragraph in help_text.split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        if lines[0] != _VERBATIM:
            yield from ([] if is_first else [".PP"])
            yield from map(_escaped, lines)
            is_first = False
            continue
        lines = lines[1:]
        if lines[0].endswith(":"):
            yield f".SH {lines[0][:-1].upper()}"
            lines = lines[1:]
        yield from (".nf", *map(_escaped, lines), ".fi")


def _definitions(pairs: list[tuple[str, str]]) -> Iterator[str]:
    for term, text in pairs:
        yield from (".TP", f"\\fB{_escaped(term)}\\fR", _escaped(text.replace("  ", " ")))


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Text as roff shows it unchanged: hyphens are ASCII's, and no line is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
