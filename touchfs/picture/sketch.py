"""A recording as columns of a picture, which is drawn block by block: extremes of each channel, and a spectrogram."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from touchfs.picture.spectrogram import Bands, levels

# Samples at least this large count as clipped: 16 bits have no larger ones.
_CLIPPED = 32767 / 32768
# Floats of a WAV may be anything.
_LOUDEST = np.float32(1e6)
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
        self._powers = np.zeros((columns, self._bands.rows), np.float32)
        self._squares = 0.0
        self._values = 0

    def add(self, first: int, samples: NDArray[np.float32], edges: NDArray[np.int64]) -> None:
        """Draw samples of shape (frames, channels) from the column `first` on. `edges` as for `Bands.powers`."""
        if not len(samples):
            return
        flat = samples.ravel()
        squares = float(np.dot(flat, flat))
        finite = samples
        if not np.isfinite(squares):
            finite = np.clip(np.nan_to_num(samples, posinf=1, neginf=-1), -_LOUDEST, _LOUDEST)
            squares = float(np.square(finite, dtype=np.float64).sum())
        drawn, places = slice(first, first + len(edges) - 1), np.minimum(edges[:-1], len(samples) - 1)
        shown = finite[:, : len(self.low)]
        self.low[:, drawn] = np.minimum.reduceat(shown, places).T
        self.high[:, drawn] = np.maximum.reduceat(shown, places).T
        self._powers[drawn] = self._bands.powers(_mixed(finite), edges)
        peak = float(max(finite.max(), -finite.min()))
        self.peak = max(self.peak, peak)
        if peak >= _CLIPPED:
            self.clipped += int(np.count_nonzero(np.abs(finite) >= _CLIPPED))
        self._squares += squares
        self._values += finite.size

    @property
    def rms(self) -> float:
        """The root of the mean square of all samples that were drawn."""
        return float(np.sqrt(self._squares / self._values)) if self._values else 0.0

    def levels(self) -> NDArray[np.uint8]:
        """The spectrogram of the mean of all channels, as `spectrogram.levels`."""
        return levels(self._powers)


def _mixed(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of all channels."""
    mixed: NDArray[np.float32] = samples.mean(axis=1, dtype=np.float32) if samples.shape[1] > 1 else samples[:, 0]
    return mixed
