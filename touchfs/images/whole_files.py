"""Recordings that lists name, below the audio root. Each is a device of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.catalog import Catalog
from touchfs.catalog.columns import as_array
from touchfs.form.beside import WHOLE
from touchfs.images.devices import Device

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class WholeFiles:
    """The rows of a shard's catalog that are whole files, and the numbers of the devices that these are."""

    rows: Numbers
    devices: Numbers


NO_WHOLE_FILES = WholeFiles(np.zeros(0, np.int64), np.zeros(0, np.int64))


class WholeFilesFinder:
    """Finds whole files below the audio root `root`, and adds each once to `devices`."""

    def __init__(self, root: str, devices: list[Device]) -> None:
        self._root = root
        self._devices = devices
        # By the path and the fingerprint, as catalogs have them.
        self._numbers = dict[bytes, int]()

    def find(self, catalog: Catalog) -> WholeFiles:
        """The whole files of a shard. Raises FormatError if its catalog is damaged."""
        table = catalog.tables["shards"]
        kinds = [number for number, kind in enumerate(catalog.kinds, 1) if kind.form == str(WHOLE)]
        rows = np.flatnonzero(np.isin(as_array(table.kind), kinds))
        return WholeFiles(rows, np.array([self._number(table.inline(row)) for row in rows.tolist()], np.int64))

    def _number(self, detail: bytes) -> int:
        if (number := self._numbers.get(detail)) is None:
            place = WHOLE.place(detail)
            self._devices.append(Device(place.path, place.fingerprint, self._root))
            number = self._numbers[detail] = len(self._devices)
        return number
