"""Options for where iterators are kept, shared by commands that use them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from touchfs.cli.command import state_option
from touchfs.core.errors import UsageError


def state_database_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options for a store in a database. The command gets `state_database`, a StateDatabase or None."""

    @state_option(
        "--state-store",
        metavar="URL",
        help=(
            "Keep iterators in this PostgreSQL, for all machines: postgresql://HOST/DATABASE, without a password. "
            "See docs/fleets.md."
        ),
    )
    @state_option(
        "--state-name", metavar="NAME", help="Name of the dataset's iterators there. [default: last part of DATASET]"
    )
    @wraps(function)
    def command(*arguments: Any, state_store: str | None, state_name: str | None, **others: Any) -> Any:
        if state_name is not None and state_store is None:
            raise UsageError("--state-name needs --state-store")
        database = None
        if state_store is not None:
            from touchfs.iterators.store_place import StateDatabase

            database = StateDatabase.parse(state_store, state_name or "")
        return function(*arguments, state_database=database, **others)

    return command
