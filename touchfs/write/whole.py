"""Writers for a `with` block, at whose end what they wrote is put in place, unless an exception comes first."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Self


class WholeWriter:
    """`_context` makes the files, and puts them in place; a subclass sets it."""

    _context: AbstractContextManager[None]

    def __enter__(self) -> Self:
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)
