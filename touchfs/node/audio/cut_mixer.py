"""A mixer of noise into the audio of each item. An item gets the same noise whenever it is made.

Each item has its own random numbers, seeded by the epoch and the item's token, so it does not depend on the items made
before. They are drawn in this order: whether to mix (`mix_prob`), the signal-to-noise ratio if `snr` is a range, then
for each noise its ordinal and, with `random_mix_offset`, its first sample. Seeds, order and arithmetic are those of
Lhotse's mixer over indexed cuts, so a seed gives the same audio.

The token is `(seed, source_token)`. Its seed is `seed` + epoch, or `seed` if `stateful=False`, so a token of any epoch
rebuilds that epoch's noise.

The input is a `Cut`: an object with `id`, `audio` and `sampling_rate`. The output is a copy with another `id` and
`audio` (by `dataclasses.replace` for a dataclass), so an object must compute other properties of its audio, such as
its duration, from `audio`. A sample of a dataset becomes a `Sound`, its decoded recording, mixed or not.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any
from uuid import UUID

import numpy as np

from touchfs.core.errors import UsageError
from touchfs.core.token import State, Token, from_json, read_token, to_json
from touchfs.format.lhotse import DECIMALS, samples_of
from touchfs.node.audio.mixing import Audio, mix
from touchfs.node.audio.sound import Cut, as_cut, with_id
from touchfs.node.core.description import describe, drawn_seeds_of, take_described_seeds
from touchfs.node.core.foreign import count_ordinals, locate, maker
from touchfs.node.core.iteration import Make, Pair
from touchfs.node.core.iterator_node import IteratorNode, is_partitioned, kind_of, resolve_iterator_source
from touchfs.node.core.lhotse_names import refuses
from touchfs.node.core.ranks import Ranks
from touchfs.node.core.saved import LARGEST, Saved
from touchfs.node.core.seed import DrawnSeed, SeedOrRng, resolve_seed
from touchfs.node.core.transform import TransformIteration, TransformNode
from touchfs.node.leaf.manifest import LazyIndexedManifestIterator

# Shorter noise is not added at the end: its features could have no frame.
LEAST_SECONDS = 0.05


class LazyCutMixer(TransformNode):
    """Each item of `cuts`, with probability `mix_prob` mixed with noise. A token is `(seed, source_token)`.

    `mix_in_cuts` is a sequence or an indexed node of cuts, drawn uniformly; all ranks draw from all of it. Noise covers
    the whole cut, from as many cuts as needed, or `duration` seconds, which is then the length of the result. `snr` is
    in decibels, a number or a range (low, high); None keeps the noise's own level. `preserve_id` keeps the id of the
    cut ("left") or of the noise ("right"); otherwise the result gets a new id. With `stateful=False` a cut has the same
    noise in each epoch. `seed` is an integer, or a generator from which one seed is drawn. `random_mix_offset` begins
    each noise at a random sample. `allow_padding` has no effect, as in Lhotse's mixer: noise never begins after the end
    of the cut.

    Raises UsageError for parameters out of range. Making an item raises UsageError for noise of another sampling rate
    or without samples, and for objects without audio.
    """

    @refuses(tag="it marks a track of a mix, and here the tracks are mixed at once")
    def __init__(
        self,
        cuts: Any,
        mix_in_cuts: Any,
        duration: float | None = None,
        *,
        snr: float | Sequence[float] | None = 20,
        preserve_id: str | None = None,
        mix_prob: float = 1.0,
        seed: SeedOrRng = 42,
        random_mix_offset: bool = False,
        stateful: bool = True,
        allow_padding: bool = False,
    ) -> None:
        super().__init__(cuts)
        if duration is not None and not 0 < duration < math.inf:
            raise UsageError(f"the duration of a mix is finite and above 0 seconds, not {duration}")
        if not 0 <= mix_prob <= 1:
            raise UsageError(f"mix_prob is within 0 and 1, not {mix_prob}")
        if isinstance(snr, Sequence) and len(snr) != 2:
            raise UsageError(f"a range of snr has two ends, not {snr!r}")
        if preserve_id not in (None, "left", "right"):
            raise UsageError(f"preserve_id is None, 'left' or 'right', not {preserve_id!r}")
        self.mix_in_cuts = _indexed(mix_in_cuts)
        self.duration = duration
        self.snr = snr
        self.preserve_id = preserve_id
        self.mix_prob = mix_prob
        self.seed = resolve_seed(seed, is_partitioned(self.source), takes_rng=True)
        self.random_mix_offset = random_mix_offset
        self.stateful = stateful

    def iteration(self, epoch: int, saved: Saved) -> CutMixerIteration:
        return CutMixerIteration(self, epoch, saved)

    def make(self, token: Token) -> Any:
        seed, token = self._parts_of(token)
        return self.mix(partial(super().make, token), seed, token)

    def mix(self, make: Make, seed: int, token: Token) -> Any:
        """Return the cut that `make()` makes with noise mixed into it, with random numbers of this seed and token."""
        cut, random = as_cut(make()), Random(_combined(seed, token))
        return cut if random.uniform(0.0, 1.0) > self.mix_prob else self._mixed(cut, random)

    def config(self) -> State:
        return {
            "duration": self.duration,
            "snr": list(self.snr) if isinstance(self.snr, Sequence) else self.snr,
            "preserve_id": self.preserve_id,
            "mix_prob": self.mix_prob,
            "seed": int(self.seed),
            "random_mix_offset": self.random_mix_offset,
            "mix_in_cuts": describe(self.mix_in_cuts),
            **({} if self.stateful else {"stateful": False}),
        }

    def seed_of(self, seed: int, epoch: int) -> int:
        """Return the seed in the tokens of an epoch."""
        return seed + epoch if self.stateful else int(seed)

    def described(self) -> list[Any]:
        # The noise has no state, so `config` must identify it.
        return [self.mix_in_cuts]

    def drawn_seeds(self) -> list[DrawnSeed]:
        return [*super().drawn_seeds(), *drawn_seeds_of(self.described())]

    def take_seeds(self, config: Saved) -> None:
        super().take_seeds(config)
        take_described_seeds(self.mix_in_cuts, config.child("mix_in_cuts"))

    @classmethod
    def merge(cls, ranks: Ranks) -> State:
        for state in ranks.states:
            if taken := state.integer("taken"):
                raise UsageError(
                    f"{state.where}: {taken} items had no tokens, so their noise depends on how many this rank took: "
                    "to resume with other ranks, mix into indexed items"
                )
        return {"taken": 0, "source": ranks.source()}

    def locate(self, token: Token, epoch: int) -> State:
        seed, inner = self._parts_of(token)
        if seed != (expected := self.seed_of(self.seed, epoch)):
            raise UsageError(f"token {token!r} is not one of epoch {epoch}, whose tokens begin with {expected}")
        return {**self.begin(epoch).state(), "source": locate(self.source, inner, epoch)}

    def __len__(self) -> int:
        return len(self.source)

    def token_at(self, ordinal: int, epoch: int) -> Token:
        """Return the token of an ordinal of the source in an epoch, for a global shuffle above."""
        return self.seed_of(self.seed, epoch), self.source.token_at(ordinal, epoch)

    def ordinal_of(self, token: Token) -> int:
        """Return the source's ordinal of a token."""
        return int(self.source.ordinal_of(self._parts_of(token)[1]))

    def _parts_of(self, token: Token) -> tuple[int, Token]:
        if not isinstance(token, tuple) or len(token) != 2 or type(token[0]) is not int:
            raise TypeError(f"{kind_of(self)} expects tokens shaped like (seed, source_token), not {token!r}")
        return token[0], token[1]

    def _mixed(self, cut: Cut, random: Random) -> Any:
        rate, signal = cut.sampling_rate, _channels(cut)
        seconds = signal.shape[1] / rate
        snr = random.uniform(*self.snr) if isinstance(self.snr, Sequence) else self.snr
        to_fill = round(seconds - LEAST_SECONDS if self.duration is None else self.duration, DECIMALS)
        end = samples_of(seconds if self.duration is None else self.duration, rate)
        tracks, filled = [(0, signal[:, :end])], 0.0
        while True:
            noise, last_id = self._noise(random, to_fill - filled, rate)
            at = samples_of(filled, rate)
            tracks.append((at, noise[:, : max(end - at, 0)]))
            filled = round(filled + noise.shape[1] / rate, DECIMALS)
            if filled >= to_fill - LEAST_SECONDS or not noise.size:
                break
        audio = mix(tracks, snr)
        # Drawn last, so that all other numbers are those that Lhotse draws.
        own_id = str(UUID(int=random.getrandbits(128), version=4))
        new_id = {"left": cut.id, "right": last_id}.get(self.preserve_id or "", own_id)
        return with_id(cut, new_id, audio=audio if cut.audio.ndim == 2 or len(audio) > 1 else audio[0])

    def _noise(self, random: Random, seconds: float, rate: int) -> tuple[Audio, str]:
        """Draw a noise. Returns its audio, or a part of `seconds` of it, and its id."""
        ordinal = random.randrange(len(self.mix_in_cuts))
        cut = as_cut(maker(self.mix_in_cuts)(self.mix_in_cuts.token_at(ordinal, 0)))
        noise = _channels(cut)
        if cut.sampling_rate != rate:
            raise UsageError(f"noise of {cut.sampling_rate} Hz cannot be mixed at {rate} Hz: resample it", key=cut.id)
        if not noise.size:
            raise UsageError("noise of zero length: leave it out of mix_in_cuts", key=cut.id)
        longest = noise.shape[1] / rate
        if self.random_mix_offset and longest > seconds:
            start = samples_of(random.uniform(0, longest - seconds), rate)
            noise = noise[:, start : start + max(samples_of(seconds, rate), 0)]
        return noise, cut.id


class CutMixerIteration(TransformIteration):
    """`taken` counts the epoch's items without a token; the count seeds the next such item."""

    node: LazyCutMixer

    def __init__(self, node: LazyCutMixer, epoch: int, saved: Saved) -> None:
        super().__init__(node, epoch, saved)
        self.taken = saved.integer("taken", 0 if node.has_constant_time_access else LARGEST)

    def walk(self) -> Iterator[Pair]:
        node, seed = self.node, self.node.seed_of(self.seed, self.epoch)
        for token, make in self.source.pairs:
            if token is None:
                self.taken += 1
                yield None, partial(node.mix, make, seed, self.taken - 1)
            else:
                yield (seed, token), partial(node.mix, make, seed, token)

    def position(self) -> State:
        return {**super().position(), "taken": self.taken}


def _indexed(mix_in_cuts: Any) -> Any:
    node = resolve_iterator_source(mix_in_cuts)
    why = f"mix_in_cuts is a {kind_of(node)}, and noise is drawn at random: give a sequence or an indexed node"
    if not isinstance(node, IteratorNode):
        try:
            node = LazyIndexedManifestIterator(node)
        except TypeError as error:  # it has no length
            raise UsageError(why) from error
    count = count_ordinals(node)
    if not count:
        raise UsageError(why if count is None else "mix_in_cuts is empty")
    return node


def _combined(seed: int, token: Token) -> int:
    """Combine a seed and a token as Lhotse does, which hashes the pickle of the token.

    The token goes through JSON first: a pickle depends on whether two parts of it are the same object.
    """
    plain = read_token(from_json(to_json(token)))
    digest = blake2b(pickle.dumps(plain, protocol=4), digest_size=8).digest()
    return (seed * 0x9E3779B97F4A7C15 + int.from_bytes(digest, "little")) & 0xFFFFFFFFFFFFFFFF


def _channels(cut: Cut) -> Audio:
    try:
        audio = cut.audio
    except AttributeError as error:
        raise UsageError(f"{kind_of(cut)} objects have no audio: map them to objects that have", key=cut.id) from error
    if not isinstance(audio, np.ndarray) or audio.ndim not in (1, 2) or audio.dtype.kind != "f":
        raise UsageError("audio must be an array of floats, of samples or of channels and samples", key=cut.id)
    return np.atleast_2d(audio)
