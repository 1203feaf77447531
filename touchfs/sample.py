"""A sample: one training example of a shard, a key and named fields.

A field does not hold bytes, only where they are (`source`, a file of the shard; `offset`, `size`) and what they are
(`form`). Everything that shows or computes a file's bytes is made from that, so a sample costs no IO.

Forms are short strings, because catalogs store them:

    bytes                    the bytes are the file
    wav/RATE[/CHANNELS]      headerless PCM, 16 bit little-endian, mono unless said
    npy/DTYPE                elements of a NumPy dtype, one-dimensional
    sparse                   pieces of a file with holes, end to end; the detail says where they belong (`shard.holes`)
    decoded/RATE/CHANNELS    a recording in any coding; the file is a WAV of the samples that the detail names
    lilcom/N[/M…]            an array of this shape by lilcom; the file is its .npy of 32-bit floats
    inline                   the catalog holds the bytes, which were computed from the field
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from touchfs.format.metainfo import Metainfo

NO_METAINFO = Metainfo(key=None, text=None, rate=None, segments=())


@dataclass(frozen=True, slots=True)
class Field:
    """`extension` is without its dot; None is none at all, where "" is a dot that nothing follows.

    `note` says why a field has this form and not a better one; it is shown as `user.touchfs.reason`.

    `detail` is what differs from field to field of one form, for forms that need more than a range.
    """

    name: str
    source: str
    offset: int
    size: int
    form: str
    extension: str | None
    note: str = ""
    detail: bytes = b""


@dataclass(frozen=True, slots=True)
class Recording:
    """What segments are cut from: `length` samples at `rate` Hz of each channel, PCM (`wav/…`) or coded (`bytes`)."""

    field: Field
    rate: int
    channels: int
    length: int


class _WithOrigin:
    """Room for the token that an iterator hangs on a sample. It is no field, so it is never saved."""

    __slots__ = ("_graph_origin",)


@dataclass(frozen=True, slots=True)
class StoredSample(_WithOrigin):
    """`key` is never empty: a sample without one (`is_keyed` is False) is named by where it is, as `00000012`.

    `metainfo` was read from the field `metainfo_field`, if it tells anything. `problem` says what is wrong with a
    sample of a damaged shard; the fields it has can be served all the same. Where `recording` is None, it is the first
    field of PCM.
    """

    key: str
    ordinal: int
    fields: Mapping[str, Field]
    metainfo: Metainfo = field(default=NO_METAINFO)
    problem: str = ""
    metainfo_field: str = "metainfo"
    is_keyed: bool = True
    recording: Recording | None = None


class Samples(Sequence[StoredSample]):
    """All that a sequence of samples has, where a kind of shard says how many there are, and each one."""

    @property
    def remarks(self) -> Sequence[str]:
        """What a user should know of these samples though all of them can be shown, a line each."""
        return ()

    @abstractmethod
    def sample(self, ordinal: int) -> StoredSample:
        """The sample at an ordinal that is surely there."""

    @overload
    def __getitem__(self, ordinal: int) -> StoredSample: ...

    @overload
    def __getitem__(self, ordinal: slice) -> list[StoredSample]: ...

    def __getitem__(self, ordinal: int | slice) -> StoredSample | list[StoredSample]:
        count = len(self)
        if isinstance(ordinal, slice):
            return [self.sample(i) for i in range(*ordinal.indices(count))]
        if not -count <= ordinal < count:
            raise IndexError(f"sample {ordinal} of {count}")
        return self.sample(ordinal % count)

    def __iter__(self) -> Iterator[StoredSample]:
        return map(self.sample, range(len(self)))
