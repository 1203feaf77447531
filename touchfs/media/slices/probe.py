"""Find out what a recording is, without decoding it: its format, and its exact number of samples.

PCM and FLAC need their headers only. Ogg is read by touchfs; other containers by libav's demuxers in a child process.
Both find all packets (up to 0.5 s for an hour), and what they find is the index that slices need. If libav knows a
coding and we do not, or a container spreads its packets over the file, the recording is decoded, and its samples are
counted.

The number of samples is that of ffmpeg's full decode: without encoder delay and padding, if the file says how much that
is (LAME's tag in MP3, edit lists in MP4, pre-skip and the last granule position in Ogg).
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Reads, drive
from touchfs.format import wav
from touchfs.media.coding import flac_frames, ogg, w64
from touchfs.media.coding.adpcm import ADPCM, ADPCM_BITS, build_adpcm_format
from touchfs.media.coding.sample_format import format_of_bits, format_of_wav
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.containers import DEMUXERS, FROM_START_BYTES_A_SECOND, detect
from touchfs.media.slices.media_info import FROM_START, MediaInfo
from touchfs.media.slices.packet_index import PacketIndex
from touchfs.media.slices.preroll import PREROLL_SECONDS_MAX
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
            header = drive((wav.scan_cut if container == "wav" else w64.scan)(size - begin), Exactly(content, begin))
            header = replace(header, data_offset=begin + header.data_offset)
            return _pcm(header, container, size) or _demuxed(content, container, pool)
        case "rifx":  # libav takes its samples for little-endian
            info = _demuxed(content, container, pool)
            return replace(info, coding=re.sub("le$", "be", info.coding))
        case "flac":
            return drive(_flac(begin, size), Exactly(content))
        case "ogg":
            return _chain([_ogg(audio, size) for audio in drive(ogg.scan(size), Exactly(content))])
    return _demuxed(content, container, pool)


def _pcm(header: wav.Wav, container: str, size: int) -> MediaInfo | None:
    """The recording of a WAV of PCM, floats, G.711 or ADPCM; None for other codings."""
    width, found = (header.bits + 7) // 8, format_of_wav(header.codec, header.bits)
    if found is not None:
        coding, sample_format = "pcm_u8" if found == "u8" else f"pcm_{found}le", found
    elif (header.codec, width) in _G711:
        coding, sample_format = _G711[header.codec, width], "s16"
    elif header.codec in ADPCM:
        return _adpcm(header, container, size)
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


def _adpcm(header: wav.Wav, container: str, size: int) -> MediaInfo:
    """Each block is a packet, also the last one, which may be shorter."""
    coding, samples_of = ADPCM[header.codec]
    full, rest = divmod(header.data_size, max(header.block_size, 1))
    lengths = [samples_of(bytes_, header.channels) for bytes_ in (header.block_size, rest)]
    if header.bits != ADPCM_BITS or min(header.block_size, lengths[0]) <= 0:
        raise FormatError(f"ADPCM of {header.bits} bits in blocks of {header.block_size} bytes is not supported")
    blocks = full + (lengths[1] > 0)
    sizes = np.full(blocks, header.block_size, np.uint32)
    counts = np.full(blocks, lengths[0], np.uint32)
    if blocks > full:
        sizes[-1], counts[-1] = rest, lengths[1]
    offsets = header.data_offset + header.block_size * np.arange(blocks, dtype=np.int64)
    return MediaInfo(
        container=container,
        coding=coding,
        rate=header.rate,
        channels=header.channels,
        sample_format="s16",
        frames=int(counts.sum(dtype=np.int64)),
        file_size=size,
        extradata=build_adpcm_format(header),
        packets=PacketIndex(offsets, sizes, np.ones(blocks, np.uint32), counts, 0),
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


def _chain(links: list[MediaInfo]) -> MediaInfo:
    """The recording of all links, one after another: recordings of a chain, or parts of an edit list."""
    links = [link for link in links if link.frames] or links[:1]
    if len(links) == 1:
        return links[0]
    frames = sum(link.frames for link in links)
    return replace(links[0], frames=frames, extradata=b"", packets=None, links=tuple(links))


def _demuxed(content: Content, container: str, pool: DecodePool) -> MediaInfo:
    if container not in DEMUXERS:
        raise FormatError(f"a {container} file whose coding is not supported")
    request = {"demuxer": DEMUXERS[container], "size": content.size}
    values, blobs = pool.request("demux", request, content=content, extra_seconds=content.size / _BYTES_A_SECOND)
    try:
        if "parts" not in values:
            return _from_start(content, container, pool)
        extradata, offsets, sizes, lengths = blobs
        whole = PacketIndex(
            np.frombuffer(offsets, "<i8"),
            np.frombuffer(sizes, "<u4"),
            np.ones(len(sizes) // 4, np.uint32),
            np.frombuffer(lengths, "<u4"),
            0,
        )
        info = MediaInfo(
            container=container,
            coding=str(values["coding"]),
            rate=int(values["rate"]),
            channels=int(values["channels"]),
            sample_format=str(values["sample_format"]),
            frames=0,
            file_size=content.size,
            extradata=bytes(extradata),
        )
        parts = [(int(first), int(frames)) for first, frames in values["parts"]]
        if len(parts) == 1:
            return replace(info, packets=replace(whole, head=parts[0][0]), frames=parts[0][1])
        before = info.rate * PREROLL_SECONDS_MAX
        links = [replace(info, packets=whole.part(*part, before, content.size), frames=part[1]) for part in parts]
        return _chain([*links, info])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError("cannot be demuxed: the decoder sends nonsense") from error


def _from_start(content: Content, container: str, pool: DecodePool) -> MediaInfo:
    values, _ = pool.request(
        "decode_from_start",
        {"demuxer": DEMUXERS[container], "size": content.size},
        content=content,
        extra_seconds=content.size / FROM_START_BYTES_A_SECOND,
    )
    return MediaInfo(
        container=container,
        coding=FROM_START,
        rate=int(values["rate"]),
        channels=int(values["channels"]),
        sample_format=str(values["sample_format"]),
        frames=int(values["frames"]),
        file_size=content.size,
    )
