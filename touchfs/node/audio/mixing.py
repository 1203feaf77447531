"""Audio summed at a signal-to-noise ratio: Lhotse's arithmetic, so the result is the same within what floats can say.

The energy of audio is its mean square. Noise keeps its loudness where it or the signal has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from math import sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import UsageError

# (channels, samples)
Audio: TypeAlias = NDArray[Any]

# Of seconds.
DIGITS = 8


def samples_of(seconds: float, rate: int) -> int:
    """Half a sample counts as one, where round() goes to the even one."""
    return int(Decimal(round(seconds * rate, DIGITS)).quantize(Decimal(0), rounding=ROUND_HALF_UP))


def mix(tracks: Sequence[tuple[int, Audio]], snr: float | None) -> Audio:
    """Tracks that begin at these samples. The first is the signal, as loud as it is; the others get the energy that is
    `snr` decibels below its own. A track of one channel goes to all."""
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
    wanted, have = _energy(signal) * 10.0 ** (-snr / 10), _energy(noise)
    return sqrt(wanted / have) if wanted > 0 and have > 0 else 1.0


def _energy(audio: Audio) -> float:
    return float(np.mean(audio**2)) if audio.size else 0.0
