"""Find the packets of frames: the one that has a frame, and the key frame that decoding begins at."""

from __future__ import annotations

import numpy as np

from touchfs.errors import FormatError, UsageError
from touchfs.media.coding.packet_table import HIDDEN, KEY, PacketTable


class FrameIndex:
    """The frames of a video in the order in which they are shown. `times` are theirs, in ticks, `packets` theirs."""

    def __init__(self, table: PacketTable) -> None:
        shown = np.flatnonzero(table.flags & HIDDEN == 0)
        self.times, first = np.unique(table.times[shown], return_index=True)
        self.packets = shown[first]
        self._keys = np.flatnonzero(table.flags & KEY)
        self._key_times = table.times[self._keys]

    def packet_of(self, time: int) -> int:
        """The number of the packet of the frame at a time. Raises UsageError if there is none."""
        position = int(np.searchsorted(self.times, time))
        if position == len(self.times) or self.times[position] != time:
            raise UsageError(f"no frame has the time {time}")
        return int(self.packets[position])

    def key_before(self, time: int) -> int:
        """The number of the key frame that decodes the frame at a time and all after it. Raises FormatError.

        Frames that are shown before a key frame and stored after it may need the key frame before that.
        """
        for position in reversed(range(int(np.searchsorted(self._keys, self.packet_of(time), "right")))):
            if self._key_times[position] <= time:
                return int(self._keys[position])
        raise FormatError("has no key frame before the span: it is damaged")
