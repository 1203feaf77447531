"""Lhotse's names of constructor parameters: accepted as aliases, or refused with a reason, never ignored."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from touchfs.core.errors import UsageError

Init = TypeVar("Init", bound=Callable[..., None])

INDEX_PATH = "touchfs has indexes of its own, in its cache directory or, by `touchfs index --in-place`, beside the data"


def also_named(**ours: str) -> Callable[[Init], Init]:
    """Accept a parameter under Lhotse's name too: `@also_named(iterator="source")`."""

    def decorate(init: Init) -> Init:
        @wraps(init)
        def renaming(self: object, *args: Any, **kwargs: Any) -> None:
            for theirs in ours.keys() & kwargs.keys():
                if ours[theirs] in kwargs:
                    raise TypeError(f"{theirs} and {ours[theirs]} are two names of one parameter")
                kwargs[ours[theirs]] = kwargs.pop(theirs)
            init(self, *args, **kwargs)

        return cast(Init, renaming)

    return decorate


def refuses(**reasons: str) -> Callable[[Init], Init]:
    """Raise UsageError for a parameter of Lhotse that has no effect here, unless it is None or False."""

    def decorate(init: Init) -> Init:
        @wraps(init)
        def refusing(self: object, *args: Any, **kwargs: Any) -> None:
            for name in reasons.keys() & kwargs.keys():
                if kwargs.pop(name) not in (None, False):
                    raise UsageError(f"{type(self).__name__} takes no {name}: {reasons[name]}")
            init(self, *args, **kwargs)

        return cast(Init, refusing)

    return decorate
