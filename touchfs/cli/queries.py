"""The arguments of a command without the queries of URLs, which may be signatures."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from touchfs.core.location import keep_query

_OPTION = re.compile(r"(--[\w-]+=)(.*)", re.DOTALL)
_WORD = re.compile(r"([\w-]+=)((?:https?|zip)(?:\+https?)?://.*)", re.DOTALL | re.IGNORECASE)
_SPECIAL = re.compile(r'([,"\\])')


def without_queries(arguments: Sequence[str]) -> list[str]:
    """The arguments, with `keep_query` applied to each URL: `URL`, `--index=URL`, and in `-o ro,index=URL`."""
    found: list[str] = []
    for argument in arguments:
        if (option := _OPTION.fullmatch(argument)) is not None:
            found.append(option[1] + keep_query(option[2]))
        elif found[-1:] == ["-o"] and "://" in argument:
            found.append(_without_in_words(argument))
        elif argument.startswith("-o") and "://" in argument:
            found.append("-o" + _without_in_words(argument.removeprefix("-o")))
        else:
            found.append(keep_query(argument))
    return found


def _without_in_words(text: str) -> str:
    """The value of `-o`. One that cannot be split stays as it is: the command refuses it."""
    from touchfs.cli.mount_options import split_words  # only a mount needs it

    try:
        words = split_words(text)
    except click.UsageError:
        return text
    kept = [_WORD.sub(lambda word: word[1] + keep_query(word[2]), word) for word in words]
    return text if kept == words else ",".join(_SPECIAL.sub(r"\\\1", word) for word in kept)
