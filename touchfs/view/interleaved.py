"""The view `interleaved/`: a sample of texts and images as a directory, with a file for each item.

    000.txt  001.jpg  003.tiff    the item at a position; gaps stay gaps
    003~2.tiff                    the second of two items with the same name
    metadata.json                 what the sample has besides its items
    sample.json                   the sample as it is stored
    errors.json                   the items without bytes, and why they have none

Positions have three digits, or as many as the largest one of the sample needs, so that the order of names is that of
positions.

An item may have no bytes: no member has its name, or what it names may not be opened. A policy says what is shown:
`error` shows a file that cannot be read, `warn` leaves the file out and writes `errors.json`, `drop_row` leaves the
file out, and `drop_sample` the sample.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from touchfs.form.plain import INLINE
from touchfs.interleaved.forms.failed import FAILED
from touchfs.shard.options import DROP_SAMPLE, ERROR, WARN
from touchfs.shard.sample import Field
from touchfs.view.file import ViewFile

_DIGITS = 3


class ViewItem(NamedTuple):
    """A text or an image at a position. `problem` says why it has no bytes; it is "" if it has some."""

    position: int
    field: Field
    problem: str = ""

    @classmethod
    def failed(cls, position: int, name: str, source: str, extension: str, problem: str) -> ViewItem:
        """An item without bytes, of a field of this name."""
        detail = problem.encode("utf-8", "replace")
        return cls(position, Field(name, source, 0, 0, FAILED, extension, detail=detail), problem)


@dataclass(frozen=True, slots=True)
class InterleavedSample:
    """A sample of texts and images: its items in any order, and fields with its other files, which have these names.

    `problem` says why its items are not known, "" if they are.
    """

    sample_id: str
    items: Sequence[ViewItem]
    sample_json: Field
    metadata: Field | None = None
    problem: str = ""

    @property
    def failures(self) -> list[str]:
        """A line for each item without bytes."""
        return [f"position {item.position}: {item.problem}" for item in self._ordered() if item.problem]

    def _ordered(self) -> list[ViewItem]:
        return sorted(self.items, key=lambda item: item.position)

    def files(self, on_error: str) -> list[ViewFile] | None:
        """The files of the sample; None if the policy `on_error` leaves it out. An extension is a whole name."""
        items = self._ordered()
        failed = [item for item in items if item.problem]
        if failed and on_error == DROP_SAMPLE:
            return None
        shown = items if on_error == ERROR else [item for item in items if not item.problem]
        files = [ViewFile(name, item.field) for name, item in zip(_names(items, shown), shown, strict=True)]
        if failed and on_error == WARN:
            files.append(ViewFile("errors.json", _errors(failed, self.sample_json)))
        if self.metadata is not None:
            files.append(ViewFile("metadata.json", self.metadata))
        return [*files, ViewFile("sample.json", self.sample_json)]


def _names(items: Sequence[ViewItem], shown: Sequence[ViewItem]) -> Iterator[str]:
    digits = max(_DIGITS, *(len(str(item.position)) for item in items)) if items else _DIGITS
    numbers: Counter[tuple[int, str | None]] = Counter()
    for item in shown:
        place = item.position, item.field.extension
        numbers[place] += 1
        mark = f"~{numbers[place]}" if numbers[place] > 1 else ""
        yield f"{item.position:0{digits}d}{mark}.{item.field.extension}"


def _errors(failed: Sequence[ViewItem], source: Field) -> Field:
    listed = [{"position": item.position, "modality": item.field.name, "error": item.problem} for item in failed]
    data = (json.dumps(listed, ensure_ascii=False) + "\n").encode("utf-8", "replace")
    return replace(source, name="errors", offset=0, size=0, form=INLINE, extension="errors.json", detail=data)
