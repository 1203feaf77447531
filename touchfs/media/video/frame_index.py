"""Find the packets of frames: the one that has a frame, and the key frame that decoding begins at."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError, UsageError
from touchfs.media.coding.packet_table import HIDDEN, KEY, PacketTable

# A frame needs the key frame before the last one; in damaged videos there is no limit.
_KEYS_BACK = 64


class FrameIndex:
    """The frames of a video in the order in which they are shown. `times` are theirs, in ticks, `packets` theirs."""

    def __init__(self, table: PacketTable) -> None:
        shown = np.flatnonzero(table.flags & HIDDEN == 0)
        self.times, first = np.unique(table.times[shown], return_index=True)
        self.packets = shown[first]
        self._keys = np.flatnonzero(table.flags & KEY)
        self._key_times = table.times[self._keys]

    @classmethod
    def of(cls, table: PacketTable) -> FrameIndex:
        """The index of a table. It is kept as long as the table: for an hour of pictures it takes 10 ms."""
        if (index := _indexes.get(table)) is None:
            index = _indexes[table] = cls(table)
        return index

    def packets_of(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the packets of the frames at these times. Raises UsageError for a time without a frame."""
        places = np.searchsorted(self.times, times)
        is_wrong = np.append(self.times, 0)[places] != times
        is_wrong |= places == len(self.times)
        if is_wrong.any():
            raise UsageError(f"no frame has the time {times[is_wrong][0]}")
        return self.packets[places]

    def keys_before(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the key frames that decode the frames at these times and all after them; -1 if there is none.

        Frames that are shown before a key frame and stored after it may need the key frame before that.
        """
        keys, key_times = np.append(self._keys, -1), np.append(self._key_times, 0)  # the last for the place -1
        places = np.searchsorted(self._keys, self.packets_of(times), "right") - 1
        for _ in range(_KEYS_BACK):
            is_later = (key_times[places] > times) & (places >= 0)
            if not is_later.any():
                break
            places[is_later] -= 1
        places[(key_times[places] > times)] = -1
        return keys[places]

    def key_before(self, time: int) -> int:
        """As `keys_before`, for one time. Raises FormatError if there is none."""
        key = int(self.keys_before(np.array([time]))[0])
        if key < 0:
            raise FormatError("has no key frame before the span: it is damaged")
        return key


_indexes: WeakKeyDictionary[PacketTable, FrameIndex] = WeakKeyDictionary()
