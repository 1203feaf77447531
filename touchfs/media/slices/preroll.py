"""The preroll: decoding begins so far before a span that it decodes as it does from the start of the recording.

    PCM, FLAC, ALAC   nothing: each packet stands for itself
    MP3               two frames for the overlap and the filter bank, and before them 511 bytes of frames, where their
                      bits may begin (the bit reservoir): bit-equal
    MP2               the same; within 1 of 32768, as ffmpeg uses a decoder that shapes the noise of its rounding
    Vorbis            the packet before, which overlaps: bit-equal
    AAC               the packet before overlaps, and long-term prediction takes two more: bit-equal. Two things differ.
                      *Noise substitution* (PNS) fills bands with random numbers. Those of libav depend on how many it
                      has drawn since the start, so these bands have other noise, of the same energy. Encoders use it
                      above 4 kHz at low bit rates; in speech of 24 kbit/s samples differ by up to 50 of 32768. The
                      prediction of the Main profile, which no encoder in use writes, needs 240 packets
    HE-AAC            as AAC; its bands of high frequencies need up to 1 s until they have a header
    Opus, AMR         3 s. CELT is bit-equal. SILK and AMR predict from what they have decoded and forget the past only
                      gradually. So they come within 1 of 32768; one slice of speech in 150, with loud periodic sounds,
                      within 4. The specification of Opus asks for 80 ms, after which SILK may be all wrong

All of it holds for one version of libav. Another version may round differently in its transforms, by 1 of 32768.
"""

from __future__ import annotations

from bisect import bisect_right

from touchfs.media.slices.packet_index import PacketIndex

_RESERVOIR = 511
_MP3_HEADER_MAX = 38  # header 4, checksum 2, side information up to 32: none of it is reservoir
_MP3_OVERLAP = 2
# Nothing needs more than that before a span
PREROLL_SECONDS_MAX = 4
_PACKETS = {"vorbis": 1, "aac": 3}
_SECONDS = {"opus": 3, "amr_nb": 3, "amr_wb": 3}
_HE_AAC_LENGTH = 2048  # samples of a packet, which is 1024 or 960 without bands of high frequencies


def first_packet(index: PacketIndex, coding: str, rate: int, needed: int) -> int:
    """Return the packet to begin decoding with, if `needed` is the first one whose samples are needed."""
    if coding in ("mp3", "mp2"):
        first = max(needed - _MP3_OVERLAP, 0)
        found = 0
        while first > 0 and found < _RESERVOIR:
            first -= 1
            found += max(int(index.sizes[first]) - _MP3_HEADER_MAX, 0)
        return first
    seconds = _SECONDS.get(coding, 0)
    if coding == "aac" and int(index.lengths[needed]) >= _HE_AAC_LENGTH * 15 // 16:
        seconds = 1
    if seconds:
        start = int(index.starts[needed]) - seconds * rate
        return max(bisect_right(index.starts, start) - 1, 0)
    return max(needed - _PACKETS.get(coding, 0), 0)
