"""A recording as columns of a picture, which is drawn block by block: extremes of each channel, and a spectrogram."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from touchfs.picture.spectrogram import Bands, levels

# Samples at least this large count as clipped: 16 bits have no larger ones.
_CLIPPED = 32767 / 32768
# Channels that are drawn. Others are in the spectrogram.
CHANNELS = 8


class Sketch:
    """The columns of a recording's picture. All blocks that are added cover whole columns."""

    def __init__(self, columns: int, rate: int, channels: int) -> None:
        self.columns = columns
        self.low = np.zeros((min(channels, CHANNELS), columns), np.float32)
        self.high = np.zeros((min(channels, CHANNELS), columns), np.float32)
        self.peak = 0.0
        self.clipped = 0
        self._bands = Bands(rate)
        self._powers = np.zeros((columns, len(self._bands_of_silence())), np.float32)
        self._squares = 0.0
        self._values = 0

    def _bands_of_silence(self) -> NDArray[np.float32]:
        size = len(self._bands.window)
        return self._bands.powers(np.zeros(size, np.float32), np.array([0, size]))[0]

    def add(self, first: int, samples: NDArray[np.float32], edges: NDArray[np.int64]) -> None:
        """Draw samples of shape (frames, channels) from the column `first` on. `edges` as for `Bands.powers`."""
        if not len(samples):
            return
        finite = np.nan_to_num(samples, posinf=1, neginf=-1)
        drawn, places = slice(first, first + len(edges) - 1), np.minimum(edges[:-1], len(samples) - 1)
        shown = finite[:, : len(self.low)]
        self.low[:, drawn] = np.minimum.reduceat(shown, places).T
        self.high[:, drawn] = np.maximum.reduceat(shown, places).T
        self._powers[drawn] = self._bands.powers(finite.mean(axis=1, dtype=np.float32), edges)
        sizes = np.abs(finite)
        self.peak = max(self.peak, float(sizes.max()))
        self.clipped += int(np.count_nonzero(sizes >= _CLIPPED))
        self._squares += float(np.square(finite, dtype=np.float64).sum())
        self._values += finite.size

    @property
    def rms(self) -> float:
        """The root of the mean square of all samples that were drawn."""
        return float(np.sqrt(self._squares / self._values)) if self._values else 0.0

    def levels(self) -> NDArray[np.uint8]:
        """The spectrogram of the mean of all channels, as `spectrogram.levels`."""
        return levels(self._powers)
