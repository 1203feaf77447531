"""Find out what a recording is, without decoding it: its format, and its exact number of samples.

PCM and FLAC need their headers only. Ogg is read by touchfs; other containers by libav's demuxers in a child process.
Both read all packets (about 1 s for an hour), and what they find is the index that slices need.

The number of samples is that of ffmpeg's full decode: without encoder delay and padding, if the file says how much that
is (LAME's tag in MP3, edit lists in MP4, pre-skip and the last granule position in Ogg).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from touchfs.errors import FormatError
from touchfs.extent import Content, Reads, drive
from touchfs.format import wav
from touchfs.media.coding import flac_frames, ogg, w64
from touchfs.media.coding.sample_format import format_of_bits, format_of_wav
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.containers import DEMUXERS, detect
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.packet_index import PacketIndex
from touchfs.media.slices.reading import Exactly

# libav's names by codec of a WAV and bytes of a sample
_G711 = {(wav.ALAW, 1): "pcm_alaw", (wav.MULAW, 1): "pcm_mulaw"}
# A child has a second more for so many bytes. An hour of AMR has 6 MB in 180,000 packets, and takes 2 s.
_BYTES_A_SECOND = 2e6
# type and size of a block of metadata; the last one has bit 7 set
_FLAC_BLOCK_HEADER, _FLAC_LAST, _FLAC_BLOCKS_MAX = 4, 0x80, 1000
# The smallest frame: a header of 6 bytes, a constant of 1 byte for each channel, and a checksum of 2
_FLAC_FRAME_MIN = 9


def probe(content: Content, pool: DecodePool) -> MediaInfo:
    """Find out what a recording is. Raises FormatError, the errors of `pool.request`, and those of `content`."""
    size = content.size
    container, begin = drive(detect(size), Exactly(content))
    match container:
        case "wav" | "w64":
            header = drive(wav.scan(size) if container == "wav" else w64.scan(size), Exactly(content))
            return _pcm(header, container, size) or _demuxed(content, container, pool)
        case "flac":
            return drive(_flac(begin, size), Exactly(content))
        case "ogg":
            return _ogg(drive(ogg.scan(size), Exactly(content)), size)
    return _demuxed(content, container, pool)


def _pcm(header: wav.Wav, container: str, size: int) -> MediaInfo | None:
    """The recording of a WAV of PCM, floats or G.711; None for other codings."""
    width, found = (header.bits + 7) // 8, format_of_wav(header.codec, header.bits)
    if found is not None:
        coding, sample_format = "pcm_u8" if found == "u8" else f"pcm_{found}le", found
    elif (header.codec, width) in _G711:
        coding, sample_format = _G711[header.codec, width], "s16"
    else:
        return None
    return MediaInfo(
        container=container,
        coding=coding,
        rate=header.rate,
        channels=header.channels,
        sample_format=sample_format,
        frames=header.data_size // (width * header.channels),
        file_size=size,
        offset=header.data_offset,
        size=header.data_size,
    )


def _flac(begin: int, size: int) -> Reads[MediaInfo]:
    """Read STREAMINFO, skip the other blocks; if no length is in it, find the last frame."""
    offset = begin + 4
    head = bytes((yield offset, min(_FLAC_BLOCK_HEADER + flac_frames.STREAM_INFO_SIZE, size - offset)))
    stream_info = head[_FLAC_BLOCK_HEADER:]
    if len(stream_info) < flac_frames.STREAM_INFO_SIZE or head[0] & ~_FLAC_LAST:
        raise FormatError("a FLAC file that does not begin with STREAMINFO", offset=offset)
    for _ in range(_FLAC_BLOCKS_MAX):
        offset += _FLAC_BLOCK_HEADER + int.from_bytes(head[1:4], "big")
        if head[0] & _FLAC_LAST or offset + _FLAC_BLOCK_HEADER > size:
            break
        head = bytes((yield offset, _FLAC_BLOCK_HEADER))
    if offset > size:
        raise FormatError("a FLAC file that ends before its frames", offset=size)
    stream = flac_frames.parse_stream_info(stream_info, offset, size)
    frames = stream.frames
    if not frames and offset < size:
        frames = yield from flac_frames.last_sample(stream)
    if frames > (size - offset) // _FLAC_FRAME_MIN * stream.block_max:
        raise FormatError(f"a FLAC file of {size} bytes cannot have {frames} samples: it is cut short", offset=size)
    return MediaInfo(
        container="flac",
        coding="flac",
        rate=stream.rate,
        channels=stream.channels,
        sample_format=format_of_bits(stream.bits),
        frames=frames,
        file_size=size,
        offset=offset,
        size=size - offset,
        extradata=stream_info,
    )


def _ogg(audio: ogg.OggAudio, size: int) -> MediaInfo:
    index = PacketIndex(
        np.array(audio.offsets, np.int64),
        np.array(audio.sizes, np.uint32),
        np.array(audio.piece_counts, np.uint32),
        np.array(audio.lengths, np.uint32),
        audio.head,
    )
    frames = max(int(index.starts[-1]) - audio.head - audio.tail, 0)
    if not frames:
        index = replace(index, head=0)
    return MediaInfo(
        container="ogg",
        coding=audio.coding,
        rate=audio.rate,
        channels=audio.channels,
        sample_format=format_of_bits(audio.bits) if audio.coding == "flac" else "f32",
        frames=frames,
        file_size=size,
        extradata=audio.extradata,
        packets=index,
    )


def _demuxed(content: Content, container: str, pool: DecodePool) -> MediaInfo:
    if container not in DEMUXERS:
        raise FormatError(f"a {container} file whose coding is not supported")
    request = {"demuxer": DEMUXERS[container], "size": content.size}
    values, blobs = pool.request("demux", request, content=content, extra_seconds=content.size / _BYTES_A_SECOND)
    try:
        extradata, offsets, sizes, lengths = blobs
        index = PacketIndex(
            np.frombuffer(offsets, "<i8"),
            np.frombuffer(sizes, "<u4"),
            np.ones(len(sizes) // 4, np.uint32),
            np.frombuffer(lengths, "<u4"),
            int(values["head"]),
        )
        return MediaInfo(
            container=container,
            coding=str(values["coding"]),
            rate=int(values["rate"]),
            channels=int(values["channels"]),
            sample_format=str(values["sample_format"]),
            frames=int(values["frames"]),
            file_size=content.size,
            extradata=bytes(extradata),
            packets=index,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError("cannot be demuxed: the decoder sends nonsense") from error
