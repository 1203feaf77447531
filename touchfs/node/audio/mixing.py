"""Mixing audio at a signal-to-noise ratio, with Lhotse's arithmetic: the results agree within float precision.

The energy of audio is its mean square. If the signal or the noise has no energy, the noise keeps its level.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import UsageError

# (channels, samples)
Audio: TypeAlias = NDArray[Any]


def mix(tracks: Sequence[tuple[int, Audio]], snr: float | None) -> Audio:
    """Return the sum of (first sample, audio) tracks, of shape (channels, samples).

    The first track is the signal, and keeps its level; the others are scaled to an energy `snr` decibels below it. A
    track of one channel is added to all channels. Raises UsageError for different numbers of channels.
    """
    signal = tracks[0][1]
    channels = {len(track) for _, track in tracks} - {1}
    if len(channels) > 1:
        raise UsageError(f"audio of {' and '.join(map(str, sorted(channels)))} channels cannot be mixed")
    mixed = np.zeros((max(channels, default=1), max(at + track.shape[1] for at, track in tracks)), signal.dtype)
    for index, (at, track) in enumerate(tracks):
        gain = 1.0 if index == 0 or snr is None else _gain(signal, track, snr)
        mixed[:, at : at + track.shape[1]] += gain * track
    return mixed


def _gain(signal: Audio, noise: Audio, snr: float) -> float:
    target, energy = _energy(signal) * 10.0 ** (-snr / 10), _energy(noise)
    return sqrt(target / energy) if target > 0 and energy > 0 else 1.0


def _energy(audio: Audio) -> float:
    return float(np.mean(audio**2)) if audio.size else 0.0
