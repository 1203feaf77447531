"""What a set says of its dataset: files, columns, counts, and a line about it that waits for nothing."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

from touchfs.core.errors import TouchfsError
from touchfs.dataset.info import info_of
from touchfs.select.concatenation import SetSamples, close, datasets_of
from touchfs.sets.summary import are_at_hand, described, extensions_of, features_of, fields_of


class Described:
    """The methods of a set that describe its dataset, and that close it."""

    _samples: SetSamples

    @property
    def extensions(self) -> list[str]:
        """The extensions of the files of the samples of its dataset, such as `jpg`."""
        return extensions_of(self._samples)

    @property
    def columns(self) -> list[str]:
        """The columns of `to_arrow()`, by the first few samples."""
        return [*self.features]

    @property
    def features(self) -> dict[str, str]:
        """The types of the columns of `to_arrow()` by their names: those of a table, else by the first few samples."""
        return features_of(self._samples, lambda: self._fields)

    def info(self) -> dict[str, Any]:
        """What `touchfs info --json` tells about its dataset as a whole: counts, sizes, splits, recordings, errors."""
        datasets = datasets_of(self._samples)
        if len(datasets) > 1:
            raise TypeError("info is of one dataset: ask the sets that were added")
        return info_of(datasets[0])

    @cached_property
    def _fields(self) -> dict[str, str]:
        return fields_of(self._samples)

    def _described(self) -> str:
        """Counts, files and fields. The fields are read from the first samples, unless somebody would wait for that."""
        fields = [*self._fields] if "_fields" in vars(self) or are_at_hand(self._samples) else []
        return f"Dataset({described(self._samples, fields)})"

    def _repr_html_(self) -> str | None:
        """It as a notebook shows it: facts, some statistics and its first samples. None, so as its `repr`, if that is
        impossible or would ask another machine.
        """
        from touchfs.explore.html import SET_BYTES, fragment
        from touchfs.pages.overview import set_page

        try:
            return fragment(set_page(self._samples, repr(self)), SET_BYTES) if are_at_hand(self._samples) else None
        except (TouchfsError, OSError, ValueError):
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files that it has open, as `with` does at its end. What reads again opens them again."""
        close(self._samples)
