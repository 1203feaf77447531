"""Join a shard with overlays: its catalog, and another one with the files of its samples' rows.

    <key>.<column>.txt          a text, a number, true or false of the row with the key
    <key>.<name>.overlay.json   the row, without its key and its nulls; name is that of the overlay

The contents are in the catalog. So a shard that is joined needs no overlay, and another overlay needs only the catalog.
The `offset` of a row as JSON is the number of the row.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.added_files import AddedFiles, keys_of, with_files
from touchfs.catalog.catalog import KINDS_MAX, Catalog, Facts, FileKind, write_catalog
from touchfs.catalog.columns import TableColumns
from touchfs.catalog.key_endings import with_suffixes
from touchfs.catalog.table import UNKEYED
from touchfs.core.errors import FormatError, MissingColumnError, TouchfsError, map_os_errors
from touchfs.core.names import hex_digest, shown_extension
from touchfs.form.plain import INLINE
from touchfs.indexing.overlays.named import NamedOverlay
from touchfs.posix.trust import atomic_own_file

log = logging.getLogger(__name__)

# Bytes of a column of a catalog
_TEXTS_MAX = 1 << 31


class Joined(NamedTuple):
    """What an overlay has for a shard: the numbers of its rows, and how many files are left out, as the example."""

    rows: NDArray[np.int64]
    left_out: int = 0
    example: str = ""


def base_of(facts: Facts) -> str:
    """What identifies the catalog with these facts as the base of another one."""
    return hex_digest(repr(facts).encode(errors="surrogatepass"))


def join_catalog(base: Catalog, path: str, overlays: Sequence[NamedOverlay]) -> tuple[Facts, list[Joined]]:
    """Write the catalog at `path`: that of a shard with the files of overlays. Raises FormatError, and as `open`."""
    table = base.tables["shards"]
    rows = table.first_files(np.arange(base.facts.samples))
    ordinals = np.flatnonzero(rows >= 0)
    ordinals = ordinals[np.asarray(table.keyed)[rows[ordinals]] != UNKEYED]
    keys = keys_of(table, rows[ordinals])
    kinds, added, of_overlay = [*base.kinds], list[AddedFiles](), list[int]()
    joined = list[Joined]()
    for number, named in enumerate(overlays):
        try:
            overlay = named.open()
        except TouchfsError as error:
            if not named.is_beside:
                raise
            if not isinstance(error, MissingColumnError):  # without keys it is about something else
                log.warning("%s: not joined with its tar; `touchfs index --force` tries it again", error)
            joined.append(Joined(np.zeros(0, np.int64)))
            continue
        found = overlay.find(keys)
        has_row = np.flatnonzero(found >= 0)
        row, ordinal = found[has_row], ordinals[has_row]
        joined.append(Joined(row))
        _, *columns = overlay.take(row)
        extensions = [named.extension, *(f"{column}.txt" for column in overlay.columns.texts)]
        for extension, values in zip(extensions, columns, strict=True):
            valid = np.flatnonzero(np.asarray(values.is_valid()))
            if not len(valid):
                continue
            kinds.append(FileKind(extension, "", str(INLINE)))
            ending = os.fsencode(f".{shown_extension(extension)}")
            inline = values.drop_null()
            added.append(AddedFiles(len(kinds), ending, ordinal[valid], row[valid], inline))
            of_overlay.append(number)
    if (size := sum(files.inline.nbytes for files in added)) >= _TEXTS_MAX:
        raise FormatError(f"the rows of its samples have {size:,} bytes, over 2 GiB: leave out columns of the overlays")
    if len(kinds) > KINDS_MAX:
        raise FormatError(f"over {KINDS_MAX} kinds of files in one shard: leave out columns of the overlays")
    if not added:
        with map_os_errors(base.path), open(base.path, "rb") as same, atomic_own_file(path) as file:
            shutil.copyfileobj(same, file)
        return base.facts, joined
    tables: dict[str, TableColumns] = {view: each.columns() for view, each in base.tables.items()}
    tables["shards"], left_out = with_files(table, added)
    for number, files, count in zip(of_overlay, added, left_out, strict=True):
        if count:
            before = joined[number]
            example = before.example or os.fsdecode(files.ending)
            joined[number] = before._replace(left_out=before.left_out + count, example=example)
    endings = with_suffixes(base.facts.endings, [os.fsdecode(each.ending) for each in added])
    facts = replace(base.facts, base=base_of(base.facts), endings=endings)
    write_catalog(path, tables, kinds, facts)
    return facts, joined
