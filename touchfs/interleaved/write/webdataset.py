"""Writer of interleaved samples as WebDataset tars, as MINT-1T has them.

    a%2Eb.1.jpg    the image at position 1 of the sample `a.b`
    a%2Eb.json     its texts, names of its images, and columns that are passed through

The name of a sample is its id, quoted with its dots, at which WebDataset readers cut. If an id comes again in a later
batch, `+2` and so on follows, which no quoted id has. Readers find the id in the JSON.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute

from touchfs.containers.tar.writer import TarWriter
from touchfs.core.errors import ArgumentValueError
from touchfs.interleaved.items.columns import column_values
from touchfs.interleaved.items.policy import MaterializePolicy
from touchfs.interleaved.layout.columns import METADATA, METADATA_POSITION, MODALITIES, RESERVED_COLUMNS
from touchfs.interleaved.layout.document import POSITIONS_FIELD
from touchfs.interleaved.layout.quoting import quote_id
from touchfs.interleaved.write.passthrough import json_columns, passthrough_fields
from touchfs.interleaved.write.sample_members import SampleItem, sample_members
from touchfs.interleaved.write.writer import InterleavedWriter
from touchfs.limits import LIMITS, Limits

log = logging.getLogger(__name__)


class InterleavedWebdatasetWriter(InterleavedWriter):
    """Writes batches to tars in the directory `path`, a path or a URL of fsspec.

    `write_kwargs` has only fsspec's `storage_options` for `path`. `texts_field` and `images_field` name the lists in
    the JSON. Rows of other modalities than text, image and metadata are an ArgumentValueError, and so are columns with
    the name of a list, before anything is written. The other parameters (materialize_on_write, mode,
    on_materialize_error, schema, schema_overrides, locations, limits) are those of `InterleavedWriter`.
    """

    suffix = ".tar"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        texts_field: str = "texts",
        images_field: str = "images",
        write_kwargs: Mapping[str, Any] | None = None,
        materialize_on_write: bool = True,
        mode: str = "ignore",
        on_materialize_error: MaterializePolicy = "error",
        schema: pa.Schema | None = None,
        schema_overrides: Mapping[str, pa.DataType] | None = None,
        locations: Sequence[str] = (),
        limits: Limits = LIMITS,
    ) -> None:
        self.list_fields = (texts_field, images_field)
        super().__init__(
            path,
            write_kwargs=write_kwargs,
            materialize_on_write=materialize_on_write,
            mode=mode,
            on_materialize_error=on_materialize_error,
            schema=schema,
            schema_overrides=schema_overrides,
            locations=locations,
            limits=limits,
        )

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"list_fields": list(self.list_fields)}

    def _check_options(self) -> None:
        if self.options:
            raise ArgumentValueError(
                f"tars have no option {min(self.options)!r}: write_kwargs has storage_options only"
            )
        if len({*self.list_fields, POSITIONS_FIELD, *RESERVED_COLUMNS}) < len(RESERVED_COLUMNS) + 3:
            raise ArgumentValueError(f"lists of texts and images cannot have the names {self.list_fields}")

    def _check_rows(self, table: pa.Table) -> None:
        super()._check_rows(table)
        found = set(table["modality"].unique().to_pylist()).difference(MODALITIES)
        if found:
            raise ArgumentValueError(f"Unsupported modality {sorted(found)}. Supported: {sorted(MODALITIES)}")
        for name in (*self.list_fields, POSITIONS_FIELD):
            if name in table.column_names:
                problem = (
                    f"the column {name!r} has the name of a list in the JSON: rename it, or leave it out by schema="
                )
                raise ArgumentValueError(f"{problem}; texts_field= and images_field= name the lists", path=self.path)
        compute = pyarrow.compute
        is_metadata = compute.equal(table["modality"], METADATA)
        is_before = compute.less(table["position"], 0)
        is_wrong = compute.if_else(is_metadata, compute.not_equal(table["position"], METADATA_POSITION), is_before)
        wrong = table.filter(is_wrong)
        if wrong.num_rows:
            row = wrong.slice(0, 1).to_pylist()[0]
            problem = f"a row of modality {row['modality']} has position {row['position']}"
            rule = "metadata rows have -1, and others 0 or more"
            raise ArgumentValueError(f"{problem}: {rule}", path=self.path, key=row["sample_id"])

    @contextmanager
    def _open(self, path: Path) -> Iterator[TarItems]:
        with TarWriter(path) as tar:
            file = TarItems(tar, self.list_fields)
            yield file
        if file.hidden:
            names = ", ".join(sorted(file.hidden))
            log.warning("metadata rows have the columns %s too, so values of items are not written", names)


class TarItems:
    """A tar of items that is being written. `hidden` has the columns whose values in items are not written."""

    def __init__(self, tar: TarWriter, list_fields: tuple[str, str]) -> None:
        self._tar = tar
        self._list_fields = list_fields
        self._times: Counter[str] = Counter()
        self.hidden: set[str] = set()

    def append(self, table: pa.Table) -> None:
        """Append the samples of a table, in the order of their first rows."""
        ids, positions = column_values(table, "sample_id"), column_values(table, "position")
        modalities, types = column_values(table, "modality"), column_values(table, "content_type")
        texts, images = column_values(table, "text_content"), _buffers(table)
        columns = json_columns(table, [name for name in table.column_names if name not in RESERVED_COLUMNS])
        samples: dict[str, list[int]] = {}
        for row, sample_id in enumerate(ids):
            samples.setdefault(sample_id, []).append(row)
        for sample_id, rows in samples.items():
            rows.sort(key=positions.__getitem__)
            items = [
                SampleItem(positions[row], modalities[row], types[row], texts[row], images[row])
                for row in rows
                if modalities[row] != METADATA
            ]
            fields, hidden = passthrough_fields(columns, rows, modalities)
            self.hidden |= hidden
            key = self._key(sample_id)
            self._tar.add(key, sample_members(sample_id, key, items, self._list_fields, fields))

    def _key(self, sample_id: str) -> str:
        self._times[sample_id] += 1
        times = self._times[sample_id]
        return quote_id(sample_id) + (f"+{times}" if times > 1 else "")


def _buffers(table: pa.Table) -> list[pa.Buffer | None]:
    """Return the bytes of each row without copying them."""
    if "binary_content" not in table.column_names:
        return [None] * table.num_rows
    return [value.as_buffer() for chunk in table["binary_content"].chunks for value in chunk]
