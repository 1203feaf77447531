"""The members of a JSON object in `_metadata.json`, each checked when it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from touchfs.core.errors import CacheFormatError

T = TypeVar("T")


class CheckedMembers:
    """The members of an object. Each method raises CacheFormatError, which names the member and the cache (`place`)."""

    def __init__(self, members: Mapping[str, Any], place: str) -> None:
        self._members = members
        self._place = place

    def _get(self, name: str, default: Any = None) -> Any:
        value = self._members.get(name)
        if value is None and default is None:
            raise CacheFormatError(f"Cache metadata of {self._place} is missing {name!r}. Rebuild the cache.")
        return default if value is None else value

    def _refuse(self, name: str, value: Any, wanted: str) -> CacheFormatError:
        shown = repr(value)[:80]
        return CacheFormatError(f"Cache metadata of {self._place}: {name} is {shown}, not {wanted}. Rebuild the cache.")

    def count(self, name: str, default: int | None = None) -> int:
        """A number from 0 to 2**63 - 1; `default` if the member is missing."""
        return self.count_in(name, self._get(name, default))

    def count_in(self, name: str, value: Any) -> int:
        """The same, for a `value` that is called `name` in errors."""
        if type(value) is not int or not 0 <= value < 2**63:
            raise self._refuse(name, value, "a count")
        return value

    def text(self, name: str, default: str) -> str:
        """A string; `default` if the member is missing."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self._refuse(name, value, "text")
        return value

    def text_or_none(self, name: str) -> str | None:
        """A string; None if the member is missing."""
        return None if self._members.get(name) is None else self.text(name, "")

    def name_in(self, name: str, value: Any) -> str:
        """A `value` that is the bare name of a file in the cache: it has no slash."""
        if not isinstance(value, str) or value in ("", ".", "..") or "/" in value or "\0" in value:
            raise self._refuse(name, value, "the bare name of a file in the cache")
        return value

    def list_of(self, name: str, parse: Callable[[str, Any], T]) -> tuple[T, ...]:
        """The elements of a list, each parsed by `parse(name, element)`."""
        value = self._get(name)
        if not isinstance(value, list):
            raise self._refuse(name, value, "a list")
        return tuple(parse(f"{name}[{i}]", element) for i, element in enumerate(value))

    def features(self) -> Mapping[str, Any] | None:
        """The JSON form of the features; None if the member is missing."""
        value = self._members.get("features")
        if value is not None and not isinstance(value, dict):
            raise self._refuse("features", value, "an object")
        return value
