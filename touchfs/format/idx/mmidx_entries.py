"""The entries of a .bin's index: where samples are, and which of these entries can be believed.

Every writer lays samples end to end: the first begins at byte 0, each one where the one before it ends, and the last
one ends with the .bin. (So it is in Megatron-LM, TouchNet, fairseq, metaseq, DeepSpeed, GPT-NeoX and datatrove; samples
of length 0 are legal.) Lengths and offsets therefore say the same thing twice. Where they contradict each other, nobody
knows which one is wrong, so both samples at that seam are damaged. All others can be served.

A length is an int32. NumPy before version 2 wrote a longer one modulo 2**32; the offsets say how long it really is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Flags of damage: the .bin is too short; the seam with the sample before; that with the one behind, or with the end.
BEYOND, BEGIN, END, REST = 1, 2, 4, 8


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Those of adjacent samples."""

    lengths: NDArray[np.signedinteger[Any]]  # in elements; of a damaged sample as stored
    offsets: NDArray[np.int64]  # in bytes, into the .bin
    damage: NDArray[np.uint8]  # 0 where a sample can be served, else flags; see `damage_text`

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, samples: slice) -> Entries:
        return Entries(self.lengths[samples], self.offsets[samples], self.damage[samples])


def judge_entries(
    stored: NDArray[np.int32], offsets: NDArray[np.int64], width: int, bin_size: int, *, is_start: bool
) -> Entries:
    """Compare the stored lengths of adjacent samples with their offsets. `width` is the size of an element in bytes.

    `offsets` has one more, that of the next sample, unless the last sample of all is among them; `is_start` says
    whether the first one is.
    """
    is_end = len(offsets) == len(stored)
    bounds = np.append(offsets, bin_size) if is_end else offsets
    offsets = offsets[: len(stored)]
    gaps = bounds[1:] - bounds[:-1]
    # Nearly always all is well, which is known in a third of the time.
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
    # Such a length is the offsets' alone: it cannot be believed beside a seam that contradicts the same offset.
    overflowed = fits & (lengths != stored)
    doubtful = overflowed & np.append(~fits[1:], False)
    lengths = np.where(fits, lengths, stored)
    damage = np.where(fits & ~doubtful, 0, END).astype(np.uint8)
    damage[1:] |= np.where(fits[:-1], 0, BEGIN).astype(np.uint8)
    damage[offsets < 0] |= BEGIN
    # Subtracted rather than added: a hostile offset plus a length may pass 2**63.
    damage[offsets > bin_size - lengths * width] |= BEYOND
    return Entries(lengths, offsets, damage)


def damage_text(damage: int, stem: str) -> str:
    """One line about a damaged sample of STEM.bin and STEM.idx."""
    if damage & END:
        return f"{stem}.idx says that this sample does not end where the next one begins"
    if damage & BEYOND:
        return f"{stem}.bin ends before this sample does"
    if damage & REST:
        return f"{stem}.idx says that this last sample does not end where {stem}.bin does"
    return f"{stem}.idx says that this sample does not begin where the one before it ends"


def float_width(stored: NDArray[np.int32], gaps: NDArray[np.int64]) -> int | None:
    """4 or 8, whichever size of an element explains more of the gaps between the samples; None if neither does."""
    counts = stored[: len(gaps)].astype(np.int64)
    four, eight = (int(np.count_nonzero((counts > 0) & (gaps == width * counts))) for width in (4, 8))
    return None if four == eight else 4 if four > eight else 8
