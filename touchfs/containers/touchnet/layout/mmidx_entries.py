"""The entries of a .bin's index: the positions of samples, and which entries are consistent.

Every writer puts samples end to end: the first begins at byte 0, each one at the end of the previous one, and the last
one ends with the .bin. (This holds for Megatron-LM, TouchNet, fairseq, metaseq, DeepSpeed, GPT-NeoX and datatrove;
samples of length 0 are legal.) So lengths and offsets are redundant. If they contradict each other, it is unknown which
one is wrong, so both samples at that boundary are damaged. All others can be served.

A length is an int32. NumPy before version 2 wrote a longer one modulo 2**32; the offsets give the true length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Flags of damage: BEYOND, the .bin is too short; BEGIN and END, the boundary with the previous and the next sample is
# contradictory; REST, the boundary of the last sample with the end of the .bin is.
BEYOND, BEGIN, END, REST = 1, 2, 4, 8


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The entries of adjacent samples; all arrays have one value per sample."""

    lengths: NDArray[np.signedinteger[Any]]  # in elements; as stored if the sample is damaged
    offsets: NDArray[np.int64]  # in bytes, in the .bin
    damage: NDArray[np.uint8]  # 0 if the sample can be served, else flags; see `damage_text`

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, samples: slice) -> Entries:
        return Entries(self.lengths[samples], self.offsets[samples], self.damage[samples])


def check_entries(
    stored: NDArray[np.int32], offsets: NDArray[np.int64], width: int, bin_size: int, *, is_start: bool
) -> Entries:
    """Compare the stored lengths of adjacent samples with their offsets. `width` is the size of an element in bytes.

    `offsets` also has the offset of the next sample, unless the last sample of the index is among them. `is_start` is
    whether the first sample of the index is among them.
    """
    is_end = len(offsets) == len(stored)
    bounds = np.append(offsets, bin_size) if is_end else offsets
    offsets = offsets[: len(stored)]
    gaps = bounds[1:] - bounds[:-1]
    # Fast path: nearly always all entries are consistent, and this check takes a third of the time.
    if (gaps == np.multiply(stored, width, dtype=np.int64)).all() and stored.min(initial=0) >= 0:
        first, last = bounds[0].item(), bounds[-1].item()
        if 0 <= first <= last <= bin_size and not (is_start and first):
            return Entries(stored, offsets, np.zeros(len(stored), np.uint8))
    entries = _find_damage(stored, offsets, gaps, width, bin_size)
    if is_start:
        entries.damage[:1] |= np.where(offsets[:1] != 0, BEGIN, 0).astype(np.uint8)
    if is_end:
        entries.damage[-1:] ^= np.where(entries.damage[-1:] & END, END | REST, 0).astype(np.uint8)
    return entries


def _find_damage(
    stored: NDArray[np.int32], offsets: NDArray[np.int64], gaps: NDArray[np.int64], width: int, bin_size: int
) -> Entries:
    lengths, rest = np.divmod(gaps, width)
    fits = (lengths.astype(stored.dtype) == stored) & (rest == 0) & (gaps >= 0)
    # Only the offsets give such a length, so it is not reliable if the next boundary contradicts the same offset.
    overflowed = fits & (lengths != stored)
    doubtful = overflowed & np.append(~fits[1:], False)
    lengths = np.where(fits, lengths, stored)
    damage = np.where(fits & ~doubtful, 0, END).astype(np.uint8)
    damage[1:] |= np.where(fits[:-1], 0, BEGIN).astype(np.uint8)
    damage[offsets < 0] |= BEGIN
    # Subtract instead of adding: a hostile offset plus a length may exceed 2**63.
    damage[offsets > bin_size - lengths * width] |= BEYOND
    return Entries(lengths, offsets, damage)


def damage_text(damage: int, stem: str) -> str:
    """Return one line about a damaged sample of STEM.bin and STEM.idx."""
    if damage & END:
        return f"{stem}.idx says that this sample does not end where the next one begins"
    if damage & BEYOND:
        return f"{stem}.bin ends before this sample does"
    if damage & REST:
        return f"{stem}.idx says that this last sample does not end where {stem}.bin does"
    return f"{stem}.idx says that this sample does not begin where the one before it ends"


def float_width(stored: NDArray[np.int32], gaps: NDArray[np.int64]) -> int | None:
    """Return 4 or 8, the element size that matches more of the gaps between samples; None if both match equally."""
    counts = stored[: len(gaps)].astype(np.int64)
    four, eight = (int(np.count_nonzero((counts > 0) & (gaps == width * counts))) for width in (4, 8))
    return None if four == eight else 4 if four > eight else 8
