"""Convert a recording to mono 16-bit PCM: such a WAV is copied, everything else is decoded as in `pack touchnet`.

FLAC of 16 bits is unpacked first: decoding with libav seeks to the start first, which in a file of one or two frames
loses the first frame.
"""

from __future__ import annotations

from tempfile import NamedTemporaryFile

from touchfs.containers.shar.write.audio import scan
from touchfs.core.errors import FormatError, TouchfsError
from touchfs.core.extent import Buffer, Memory, drive
from touchfs.format import magic, wav
from touchfs.limits import LIMITS
from touchfs.media.audio import Arithmetic, decode
from touchfs.media.coding.sample_format import pack
from touchfs.media.slices.whole import WholeRecording


def to_pcm(
    data: Buffer, rate: int | None, arithmetic: Arithmetic = "s16", limit: int = LIMITS.decoded
) -> tuple[Buffer, int]:
    """Little-endian int16 samples and their rate in Hz; `rate` None keeps the recording's own.

    Raises FormatError if it cannot be decoded, or decodes to over `limit` bytes.
    """
    if magic.extension(data) == "flac":
        data = _unpack(data, limit)
    if magic.extension(data) == "wav":
        found = drive(wav.scan(len(data)), Memory(bytes(data)))
        rate = rate or found.rate
        if found.is_pcm16 and (found.channels, found.rate) == (1, rate) and found.data_size % 2 == 0:
            return memoryview(data)[found.data_offset : found.data_offset + found.data_size], rate
    if rate is None:
        try:
            rate = scan(data).sampling_rate
        except FormatError as error:
            raise FormatError("its rate is unknown: name one with --audio-resample") from error
    with NamedTemporaryFile(prefix="touchfs-") as file:
        file.write(data)
        file.flush()
        try:
            return decode(file.name, rate, arithmetic, limit), rate
        except TouchfsError as error:  # its path is that of the temporary file
            raise type(error)(error.message) from error


def _unpack(data: Buffer, limit: int) -> Buffer:
    """A 16-bit FLAC file as WAV; other FLAC files as they are."""
    try:
        whole = WholeRecording.of(data)
        if whole.info.sample_format != "s16":
            return data
        pcm = pack(whole.samples("s16", limit), "s16")
        return wav.build_header(len(pcm), whole.info.rate, whole.info.channels) + pcm
    except FormatError as error:
        raise FormatError(f"cannot be decoded: {error.message.removeprefix('cannot be decoded: ')}") from error
