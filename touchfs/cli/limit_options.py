"""Options for limits, and the types of sizes and of seconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from touchfs.cli.command import limit_option
from touchfs.core.errors import UsageError
from touchfs.limits import LIMITS, Limits, parse_size

# 23 days: poll(2) takes at most 2**31 milliseconds.
SECONDS_MAX = 2_000_000


class Size(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """A number of bytes, for example 800M or 50G; not less than `minimum`."""

    name = "SIZE"

    def __init__(self, minimum: int = 0) -> None:
        self._minimum = minimum

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        """The number of bytes. Fails with a usage error."""
        try:
            size = value if isinstance(value, int) else parse_size(value)
        except UsageError as error:
            self.fail(error.message, parameter, context)
        if size < self._minimum:
            self.fail(f"{value!r} is less than {self._minimum}", parameter, context)
        return size


class Seconds(click.FloatRange):
    """A number of seconds that one can wait: from a minimum to `SECONDS_MAX`."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        """The number. Fails with a usage error."""
        seconds: float = super().convert(value, parameter, context)
        if not seconds <= SECONDS_MAX:  # NaN is in any range
            self.fail(f"{value!r} is no number of seconds up to {SECONDS_MAX:,}", parameter, context)
        return seconds


def _shown_size(size: int) -> str:
    return f"{size // 10**9}G" if size % 10**9 == 0 else f"{size // 10**6}M"


def _limit(name: str, default: int, description: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return limit_option(name, type=Size(1), default=_shown_size(default), show_default=True, help=description)


_LIMITS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "json": _limit("--max-json", LIMITS.json, "Maximum size of a JSON line or a sample's metainfo."),
    "decoded": _limit("--max-decoded", LIMITS.decoded, "Maximum decoded size of data that is decoded as a whole."),
    "members": _limit("--max-members", LIMITS.members, "Maximum memory for the list of the members of a tar."),
    "decode_seconds": limit_option(
        "--decode-timeout",
        type=Seconds(0, min_open=True),
        default=LIMITS.decode_seconds,
        show_default=True,
        metavar="SECONDS",
        help="Time after which a part of a recording counts as impossible to decode.",
    ),
}


def limit_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options for some of the limits. The command gets them as one argument, `limits`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(
            max_json: int = LIMITS.json,
            max_decoded: int = LIMITS.decoded,
            max_members: int = LIMITS.members,
            decode_timeout: float = LIMITS.decode_seconds,
            **others: Any,
        ) -> Any:
            limits = Limits(max_json, max_decoded, decode_seconds=decode_timeout, members=max_members)
            return function(**others, limits=limits)

        decorated: Callable[..., Any] = command
        for name in reversed(names):
            decorated = _LIMITS[name](decorated)
        return decorated

    return decorate
