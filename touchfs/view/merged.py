"""The view `merged/<plan>/`: the segments of a sample merged by a plan, as `<key>/0000.wav`, `.json` and `.txt`.

Everything comes from the catalog's table of segments: the range of each segment's `.wav` and the content of its
`.json`. So no audio and no metainfo is read, and a new plan needs no new index. Each file is identified by the row of a
file of one of its parts, so it has an inode number without a table: `.wav` and `.json` by those of the first part of
the run, `.txt` by that of the first part that has the text.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from touchfs.catalog.table import Table
from touchfs.errors import FormatError
from touchfs.form.recordings import extend_piece
from touchfs.view.plan import MergePlan, Span, as_json, joined_text, merge, span_of
from touchfs.view.segments import extension


class MergedFile(NamedTuple):
    """A file, and the row of the table of segments that identifies it.

    Its bytes are `data`. If that is None, they are made from `length` bytes at `offset` of the source of the row's
    kind, with this `detail`.
    """

    name: bytes
    row: int
    run: list[int]
    data: bytes | None = None
    offset: int = 0
    length: int = 0
    detail: bytes = b""


def merged_files(plan: MergePlan, table: Table, ordinal: int) -> list[MergedFile]:
    """The files of a sample under a plan, in name order, from the table of segments of its shard.

    Raises FormatError if the rows of the table are damaged.
    """
    try:
        return _merged_files(plan, table, ordinal)
    except (AttributeError, IndexError, KeyError, RecursionError, StopIteration, TypeError, ValueError) as error:
        problem = f"the segments of sample {ordinal} are damaged in the catalog: index with --force"
        raise FormatError(problem, path=table.path_of_catalog) from error


def _merged_files(plan: MergePlan, table: Table, ordinal: int) -> list[MergedFile]:
    rows = {(table.part[row], table.name(row)): row for row in table.files(ordinal)}
    spans: list[Span] = []
    key, rate = "", 0
    version = b"." + extension(plan.text).encode()
    while (row := rows.get((len(spans), b"%04d.json" % len(spans)))) is not None:
        derived = json.loads(table.inline(row))["touchfs"]
        if "sample_rate" not in derived:  # no recording of known length
            return []
        key, rate = derived["key"], derived["sample_rate"]
        spans.append((derived["offset"], derived["length"]))
    files = []
    for number, run in enumerate(merge(plan, key, spans, rate)):
        first, stem = run[0], b"%04d" % number
        wav = rows[first, b"%04d.wav" % first]
        first_piece = table.offset[wav], table.length[wav], table.inline(wav)
        files.append(
            MergedFile(stem + b".wav", wav, run, None, *extend_piece(*first_piece, spans[first], span_of(spans, run)))
        )
        named = [rows.get((part, b"%04d" % part + version)) for part in run]
        text = joined_text(None if row is None else table.inline(row).decode() for row in named)
        description = json.dumps(as_json(plan, key, number, spans, rate, run, text), ensure_ascii=False) + "\n"
        files.append(MergedFile(stem + b".json", rows[first, b"%04d.json" % first], run, _encoded(description)))
        if text is not None:
            files.append(MergedFile(stem + b".txt", next(row for row in named if row is not None), run, _encoded(text)))
    return sorted(files, key=lambda file: file.name)


def _encoded(text: str) -> bytes:
    """UTF-8. A lone surrogate, which JSON can contain, becomes U+FFFD, as in the segments' own files."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
