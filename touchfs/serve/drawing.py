"""The child process that draws recordings. It has a low priority, and takes no turns of Python from the threads that
serve files.

    python -m touchfs.serve.drawing SOCKET MEMORY

SOCKET and MEMORY are those of `touchfs.media.decoder.child`, whose limits it has. It draws PCM only: the server has
other recordings decoded, and gives their samples.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import numpy as np
from numpy import fft  # noqa: F401  which numpy would import when no file can be opened any more

from touchfs.core.extent import Buffer, Content, Memory
from touchfs.explore.html import waves
from touchfs.explore.recordings import Span, draw
from touchfs.media.coding.sample_format import wav_header
from touchfs.media.decoder.child import run
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.decoder.request_content import RANGE_MAX, RequestContent
from touchfs.picture.palette import NIGHT, PAPER
from touchfs.picture.png import levels_png

PROGRAM, OPERATION = "touchfs.serve.drawing", "draw"
_NICE = 10
# Nothing is decoded here, so it starts no child.
_POOL = DecodePool(1)


class _Ranges:
    """A content of which the very ranges are asked for: blocks around them would be most of a long recording."""

    def __init__(self, content: RequestContent) -> None:
        self.size = content.size
        self._content = content

    def read(self, offset: int, length: int) -> Buffer:
        """See `Content.read`."""
        end = min(offset + length, self.size)
        starts = range(offset, end, RANGE_MAX)
        return b"".join(self._content.read_range(start, min(RANGE_MAX, end - start)) for start in starts)

    def read_nowait(self, offset: int, length: int) -> None:
        """See `Content.read_nowait`."""


def _draw(request: Message, content: RequestContent) -> tuple[dict[str, Any], list[Buffer]]:
    """Draw a WAV. Values: `width`, `most_bytes` that are read, and `span`, None for all. Blobs of the answer: an SVG of
    its waveforms, and its spectrogram as PNG for paper and for night.
    """
    values, span = request.values, request.values["span"]
    part = None if span is None else (span[0], span[1])
    return {}, drawn(_Ranges(content), values["width"], values["most_bytes"], part)


def drawn(content: Content, width: int, most_bytes: int, span: Span | None = None) -> list[Buffer]:
    """The pictures of a WAV of PCM."""
    recording = draw("wav", content, width, pool=_POOL, most_bytes=most_bytes, span=span)
    levels = recording.sketch.levels()
    return [_svg(waves(recording), width), levels_png(levels, PAPER), levels_png(levels, NIGHT)]


def _svg(paths: list[str], width: int) -> bytes:
    channels = "".join(
        f'<svg y="{100 * number}" width="{width}" height="100"><path d="{path}"/></svg>'
        for number, path in enumerate(paths)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {100 * len(paths)}" preserveAspectRatio="none" '
        f'fill="#2b8a83"><style>path{{fill:#0f6b66}}@media(prefers-color-scheme:dark){{path{{fill:#5fd0c3}}}}</style>'
        f"{channels}</svg>"
    ).encode()


def as_wav(samples: np.ndarray[Any, Any], rate: int) -> Memory:
    """Decoded samples, float32 of shape (frames, channels), as a WAV."""
    data = np.ascontiguousarray(samples, "<f4").tobytes()
    return Memory(wav_header(len(data), rate, samples.shape[1], "f32") + data)


if __name__ == "__main__":
    os.nice(_NICE)
    drawn(as_wav(np.zeros((1000, 1), np.float32), 8000), 4, 1 << 20)  # all of it is imported then
    run(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), {OPERATION: _draw})
