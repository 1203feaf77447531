"""Resample PCM with libswresample, and encode it as FLAC with libFLAC, in the child process."""

from __future__ import annotations

import io
import math
from typing import Any

import av
import numpy as np
import soundfile
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.media.coding.sample_format import convert_samples, dtype
from touchfs.media.decoder.messages import Message
from touchfs.media.decoder.request_content import RequestContent

_SUBTYPES = {"s16": "PCM_16", "s24": "PCM_24"}


def convert(request: Message, _: RequestContent) -> tuple[dict[str, Any], list[Buffer]]:
    """Return samples at `new_rate` in the format `target`; as a FLAC file if `file` is "flac".

    Values: `sample_format`, `target`, `channels`, `rate`, `new_rate`, `file`. Blob: the samples, interleaved.
    """
    values = request.values
    source, target = values["sample_format"], values["target"]
    samples = np.frombuffer(request.blobs[0], dtype(source)).reshape(-1, values["channels"])
    rate, new_rate = values["rate"], values["new_rate"]
    if new_rate != rate:
        wide = "f32" if source in ("u8", "s16", "f32") else "f64"
        samples = _resample(convert_samples(samples, source, wide), rate, new_rate)
        source = wide
    samples = convert_samples(samples, source, target)
    if values["file"] == "flac":
        return {}, [_flac(samples, target, new_rate)]
    return {}, [np.ascontiguousarray(samples).data]


def _resample(samples: NDArray[Any], rate: int, new_rate: int) -> NDArray[Any]:
    """Resample each channel to ceil(frames × new_rate / rate) samples."""
    count = math.ceil(len(samples) * new_rate / rate)
    result = np.zeros((count, samples.shape[1]), samples.dtype)
    name = "flt" if samples.dtype == np.float32 else "dbl"
    for channel in range(samples.shape[1] if len(samples) else 0):
        resampler = av.AudioResampler(name, "mono", new_rate)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[:, channel])[None], name, "mono")
        frame.sample_rate = rate
        blocks = [*resampler.resample(frame), *resampler.resample(None)]
        values = np.concatenate([block.to_ndarray()[0] for block in blocks])[:count]
        result[: len(values), channel] = values
    return result


def _flac(samples: NDArray[Any], sample_format: str, rate: int) -> bytes:
    data = io.BytesIO()
    if sample_format == "s24":
        samples = samples << 8  # libsndfile takes the upper bits
    try:
        soundfile.write(data, samples, rate, format="FLAC", subtype=_SUBTYPES[sample_format])
    except soundfile.LibsndfileError as error:
        raise FormatError(f"FLAC cannot hold it: {error.error_string}") from error
    return data.getvalue()
