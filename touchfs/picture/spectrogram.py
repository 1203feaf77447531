"""Mel spectrograms: for each column of a picture, the mean power of some short windows, in bands of the ear."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from touchfs.picture.shrink import bounds

ROWS = 96
_WINDOW_SECONDS = 0.025
# A header may name any rate.
_WINDOW_MAX = 1 << 14
_PRE_EMPHASIS = np.float32(0.9)
_LOWEST_HZ = 60.0
# What is this far below the loudest is shown as silence.
_RANGE_DB = 58.0
_LOUD = 99.8
# Windows of a column, and of one transform: 2 MB at 16 kHz.
_WINDOWS = 8
_AT_ONCE = 1024


def mel(hertz: float) -> float:
    """A frequency on the mel scale (O'Shaughnessy's formula, as HTK has it)."""
    return float(2595 * np.log10(1 + hertz / 700))


def hertz(mels: float) -> float:
    """The frequency of a mel."""
    return float(700 * (10 ** (mels / 2595) - 1))


def row_of(frequency: float, rate: int, rows: int = ROWS) -> int:
    """The row of a frequency in Hz, from the bottom; the nearest one if the picture does not have it."""
    low, high = _edges(rate)
    place = (mel(frequency) - low) / max(high - low, 1e-9) * (rows + 1) - 1
    return min(max(round(place), 0), rows - 1)


def _edges(rate: int) -> tuple[float, float]:
    half = rate / 2
    return mel(min(_LOWEST_HZ, half / 2)), mel(half)


class Bands:
    """The mel bands of recordings with a rate in Hz."""

    def __init__(self, rate: int, rows: int = ROWS) -> None:
        size = min(max(int(rate * _WINDOW_SECONDS), 2), _WINDOW_MAX)
        self.window = np.hanning(size + 2)[1:-1].astype(np.float32)
        # Low bands are narrower than the bins of a window: zeros at its end make more bins.
        self._fft = 1 << max(size - 1, 512).bit_length()
        bins = np.arange(self._fft // 2 + 1) * (rate / self._fft)
        edges = np.array([hertz(each) for each in np.linspace(*_edges(rate), rows + 2)])
        below, centres, above = edges[:-2, None], edges[1:-1, None], edges[2:, None]
        rising, falling = (bins - below) / (centres - below), (above - bins) / (above - centres)
        weights = np.maximum(np.minimum(rising, falling), 0)
        total = weights.sum(axis=1, keepdims=True)
        nearest = np.abs(bins - centres).argmin(axis=1)
        narrow = total[:, 0] < 1e-6
        weights[narrow, nearest[narrow]] = total[narrow, 0] = 1
        self._weights: NDArray[np.float32] = (weights / total).astype(np.float32)
        self.rows = rows

    def powers(self, samples: NDArray[np.float32], edges: NDArray[np.int64]) -> NDArray[np.float32]:
        """Powers of columns, shape (columns, rows), of samples that are finite.

        `edges`: where each column begins in the samples, and the end.
        """
        size = len(self.window)
        sound = samples if len(samples) >= size else np.pad(samples, (0, size - len(samples)))
        widths = np.diff(edges)
        count = int(np.clip(widths.max(initial=0) // (size // 2), 1, _WINDOWS))
        # Windows are in the middle of equal parts of a column.
        middles = edges[:-1, None] + widths[:, None] * (2 * np.arange(count) + 1) // (2 * count)
        starts = np.clip(middles - size // 2, 0, len(sound) - size).ravel()
        windows = np.lib.stride_tricks.sliding_window_view(sound, size)
        found = np.empty((len(starts), len(self._weights)), np.float32)
        for first in range(0, len(starts), _AT_ONCE):
            chosen = slice(first, first + _AT_ONCE)
            taken = windows[starts[chosen]]
            taken[:, 1:] -= _PRE_EMPHASIS * taken[:, :-1]
            spectrum = np.fft.rfft(taken * self.window, self._fft)
            power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
            found[chosen] = power @ self._weights.T
        means: NDArray[np.float32] = found.reshape(len(widths), count, -1).mean(axis=1)
        return means


def levels(powers: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Levels from 0 to 255 of powers of shape (columns, rows), as rows of a picture from the top: the highest first."""
    decibels = 10 * np.log10(np.maximum(powers, 1e-12))
    loud = np.percentile(decibels, _LOUD) if decibels.size else 0.0
    if loud <= -80:  # silence, which would be noise of rounding
        return np.zeros(powers.T.shape, np.uint8)
    shares = np.clip((decibels - loud + _RANGE_DB) / _RANGE_DB, 0, 1)
    found: NDArray[np.uint8] = np.rint(shares.T[::-1] * 255).astype(np.uint8)
    return found


def spectrogram(samples: NDArray[np.float32], rate: int, columns: int, rows: int = ROWS) -> NDArray[np.uint8]:
    """The mel spectrogram of mono samples as levels, shape (rows, columns)."""
    return levels(Bands(rate, rows).powers(np.nan_to_num(samples), bounds(len(samples), columns)))
