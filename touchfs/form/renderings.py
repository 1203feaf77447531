"""Recordings of other forms, rendered: at another rate, with other channels, or as another kind of file.

A recording is rendered as a whole, and the result is kept in the scratch store. The size of a WAV is known before; that
of a FLAC is known when it is rendered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Content, Extent, Memory, Rope
from touchfs.form.base import Form, Timing
from touchfs.form.computed import ComputedContent
from touchfs.form.deferred import DeferredContent
from touchfs.form.kept import find_version, identity_of, kept_or_made
from touchfs.form.samples import wav_size
from touchfs.limits import Limits
from touchfs.media.coding.sample_format import WIDTHS, wav_header
from touchfs.posix.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from touchfs.media.slices.rendering import Rendering

# Sizes of files that this process has rendered, by what they are and by the identities of their bytes: 50 MB.
_SIZES_KEPT = 100_000
_sizes: BoundedCache[tuple[str, str], int] = BoundedCache(_SIZES_KEPT)


@dataclass(frozen=True, slots=True)
class Rendered(Form):
    """A recording of another form, rendered. A plan names it, so it is in no catalog."""

    form: Form
    rendering: Rendering

    def size(self, length: int, detail: bytes) -> int | None:
        return _wav_size(self.timing(length, detail))

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        size = _wav_size(self.known_timing(extent, detail))
        return _sizes.find((self._name(detail), identity_of(extent) or "")) if size is None else size

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        wav = self.wav(self.form.timing(extent.size, detail), extent, detail, limits)
        return DeferredContent(lambda: self._measured(extent, detail, limits)) if wav is None else wav

    def timing(self, length: int, detail: bytes) -> Timing | None:
        return self._shown(self.form.timing(length, detail))

    def known_timing(self, extent: Extent, detail: bytes) -> Timing | None:
        return self._shown(self.form.known_timing(extent, detail))

    def wav(self, timing: Timing | None, extent: Extent, detail: bytes, limits: Limits) -> Content | None:
        """The content of a recording of this length, if it is a WAV. Reads nothing. None if only its bytes tell its
        size.
        """
        shown = self._shown(timing)
        if shown is None or shown.channels is None or shown.sample_format is None:
            return None
        if shown == timing:
            return self.form.content(extent, detail, limits)
        data_size = shown.frames * shown.channels * WIDTHS[shown.sample_format]
        header = wav_header(data_size, shown.rate, shown.channels, shown.sample_format)
        data = ComputedContent(
            data_size, data_size, lambda offset, length: self.render(extent, detail, limits)[len(header) :]
        )
        return Rope((Memory(header), data))

    def render(self, extent: Extent, detail: bytes, limits: Limits) -> bytes:
        """The bytes of the file. Blocks. Raises FormatError if the recording cannot be rendered so."""
        find_version(extent)
        name, identity = self._name(detail), identity_of(extent)
        data = bytes(kept_or_made(extent, name, lambda: self._render(extent, detail, limits)))
        if identity is not None:
            _sizes.keep((name, identity), len(data))
        return data

    def _render(self, extent: Extent, detail: bytes, limits: Limits) -> bytes:
        from touchfs.media.decoder.shared import shared_pool
        from touchfs.media.slices.render import render_samples

        pcm, timing = self.form.samples(extent, detail, limits), self.form.measured(extent, detail, limits)
        usual_format = pcm.sample_format if timing is None else timing.sample_format or pcm.sample_format
        try:
            return render_samples(pcm, usual_format, shared_pool(limits.decode_seconds), self.rendering)
        except UsageError as error:
            raise FormatError(error.message) from error

    def _shown(self, timing: Timing | None) -> Timing | None:
        """The length of what is shown of a recording; None if that is not known, or it cannot be shown."""
        if timing is None or timing.channels is None or timing.sample_format is None:
            return None
        rendering = self.rendering
        try:
            channels = rendering.channels_of(timing.channels)
            sample_format = rendering.format_of(timing.channels, timing.sample_format)
        except UsageError:  # a read says why
            return None
        frames, rate = rendering.length_of(timing.frames, timing.rate), rendering.rate or timing.rate
        return Timing(frames, rate, channels, sample_format) if rendering.file == "wav" else Timing(frames, rate)

    def _measured(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        """The content of a file of unknown size, or its rendering. Reads the recording to find the size. Blocks."""
        wav = self.wav(self.form.measured(extent, detail, limits), extent, detail, limits)
        if wav is not None:
            return wav
        size = len(self.render(extent, detail, limits))
        return ComputedContent(size, size, lambda offset, length: self.render(extent, detail, limits))

    def _name(self, detail: bytes) -> str:
        """The name under which the rendering of an extent is kept."""
        return f"rendering\0{self.form}\0{detail.hex()}\0{self.rendering}"


def _wav_size(timing: Timing | None) -> int | None:
    if timing is None or timing.channels is None or timing.sample_format is None:
        return None
    return wav_size(timing.frames, timing.channels, timing.sample_format)
