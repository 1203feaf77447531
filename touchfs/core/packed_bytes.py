"""Many short byte strings as arrays: NumPy copies, joins and compares millions of them without an object for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_WORD = 8
# Values of one length up to this one are copied before their words are taken: each is read once.
_SHORT = 64
_DIGITS = 8


class PackedBytes(NamedTuple):
    """Values: where each one starts in `data`, and its length. Arrays of shape (n,)."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, values: Sequence[bytes]) -> PackedBytes:
        """These values."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        return cls.end_to_end(np.frombuffer(b"".join(values), np.uint8), lengths)

    @classmethod
    def end_to_end(cls, data: NDArray[np.uint8], lengths: NDArray[np.int64]) -> PackedBytes:
        """Values of these lengths, with nothing between them."""
        return cls(data, np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def of_equal(cls, rows: NDArray[np.uint8]) -> PackedBytes:
        """Values of one length, as rows of shape (n, length)."""
        count, size = rows.shape
        return cls(rows.reshape(-1), np.arange(count) * size, np.full(count, size))

    @classmethod
    def of_numbers(cls, numbers: NDArray[np.int64]) -> PackedBytes:
        """Numbers from 0 on, each in 8 digits at least."""
        if numbers.max(initial=0) >= 10**_DIGITS:
            return cls.of([b"%08d" % number for number in numbers.tolist()])
        powers = 10 ** np.arange(_DIGITS - 1, -1, -1)
        return cls.of_equal((numbers[:, np.newaxis] // powers % 10 + ord("0")).astype(np.uint8))

    @classmethod
    def joined(cls, parts: Sequence[PackedBytes]) -> PackedBytes:
        """The values of all parts, one after the other. Of the data between values, most is left out."""
        pieces = [part.narrowed() for part in parts if len(part.lengths)]
        if len(pieces) == 1:
            return pieces[0]
        before = np.cumsum([0, *(len(piece.data) for piece in pieces)])
        return cls(
            np.concatenate([np.empty(0, np.uint8), *(piece.data for piece in pieces)]),
            np.concatenate(
                [np.empty(0, np.int64), *(piece.starts + at for piece, at in zip(pieces, before, strict=False))]
            ),
            np.concatenate([np.empty(0, np.int64), *(piece.lengths for piece in pieces)]),
        )

    @classmethod
    def either(cls, condition: NDArray[np.bool_], first: PackedBytes, second: PackedBytes) -> PackedBytes:
        """The next value of `first` where the condition is true, else that of `second`."""
        if condition.all():
            return first
        places = np.where(condition, np.cumsum(condition) - 1, len(first.lengths) + np.cumsum(~condition) - 1)
        return cls.joined([first, second]).chosen(places)

    def narrowed(self) -> PackedBytes:
        """The same values, without the data before the first one and after the last one."""
        first = int(self.starts.min(initial=len(self.data)))
        end = int((self.starts + self.lengths).max(initial=first))
        return PackedBytes(self.data[first:end], self.starts - first, self.lengths)

    def at(self, place: int) -> bytes:
        """The value at a place."""
        start = int(self.starts[place])
        return self.data[start : start + int(self.lengths[place])].tobytes()

    def chosen(self, places: NDArray[np.int64] | slice) -> PackedBytes:
        """The values at these places, in this order, in the same data."""
        return PackedBytes(self.data, self.starts[places], self.lengths[places])

    def compacted(self) -> PackedBytes:
        """The same values, with nothing between them."""
        made = PackedBytes.end_to_end(np.empty(int(self.lengths.sum()), np.uint8), self.lengths)
        made._put(self, made.starts)
        return made

    def followed_by(self, others: PackedBytes) -> PackedBytes:
        """Each value with the other one at the same place behind it."""
        lengths = self.lengths + others.lengths
        made = PackedBytes.end_to_end(np.empty(int(lengths.sum()), np.uint8), lengths)
        made._put(self, made.starts)
        made._put(others, made.starts + self.lengths)
        return made

    def _put(self, values: PackedBytes, starts: NDArray[np.int64]) -> None:
        order = np.argsort(values.lengths, kind="stable")
        distinct, firsts = np.unique(values.lengths[order], return_index=True)
        for length, rows in zip(distinct.tolist(), np.split(order, firsts[1:]), strict=False):
            if length:
                _windows(self.data, length)[starts[rows]] = _windows(values.data, length)[values.starts[rows]]

    def words(self) -> Iterator[tuple[NDArray[np.int64] | slice, NDArray[np.uint64]]]:
        """For each 8 bytes of the longest value: the places of the values that have some of them, and these bytes as
        little-endian words, where zeros follow what is shorter.
        """
        longest = int(self.lengths.max(initial=0))
        shortest = int(self.lengths.min(initial=longest))
        if 0 < shortest == longest <= _SHORT:
            copied = _windows(self.data, longest)[self.starts].view(np.uint8).reshape(-1, longest)
            if longest % _WORD:
                copied = np.pad(copied, ((0, 0), (0, -longest % _WORD)))
            yield from ((slice(None), column) for column in copied.view("<u8").T)
            return
        data = self.data if len(self.data) >= _WORD else np.append(self.data, np.zeros(_WORD, np.uint8))
        last = len(data) - _WORD
        words: NDArray[np.uint64] = np.ndarray((last + 1,), "<u8", data.data, strides=(1,))
        starts, left = self.starts, self.lengths
        places: NDArray[np.int64] | slice = slice(None)
        for done in range(0, longest, _WORD):
            if done >= shortest:
                rows = np.flatnonzero(left > 0)
                starts, left = starts[rows], left[rows]
                places = rows if isinstance(places, slice) else places[rows]
            over = starts.max(initial=0) > last
            found = words[np.minimum(starts, last)] if over else words[starts]
            if over:
                found >>= (_WORD * np.maximum(starts - last, 0)).astype(np.uint64)
            if done + _WORD > shortest:
                unused = (_WORD * np.maximum(_WORD - left, 0)).astype(np.uint64)
                found = found << unused >> unused
            yield places, found
            starts, left = starts + _WORD, left - _WORD

    def equal(self, other: PackedBytes) -> NDArray[np.bool_]:
        """Whether each value is the other one at the same place: bool[n]."""
        found: NDArray[np.bool_] = self.lengths == other.lengths
        places = np.flatnonzero(found)
        one, two = self.chosen(places), other.chosen(places)
        is_equal = np.ones(len(places), np.bool_)
        for (rows, mine), (_, theirs) in zip(one.words(), two.words(), strict=True):
            is_equal[rows] &= mine == theirs
        found[places] = is_equal
        return found


def _windows(data: NDArray[np.uint8], length: int) -> NDArray[np.void]:
    """All pieces of this length, by where they start: NumPy copies each with one call."""
    return np.ndarray((len(data) - length + 1,), f"V{length}", data.data, strides=(1,))
