"""Packets for libav's decoders and muxers.

They read up to 64 bytes behind a packet, which must be zeros. `av.Packet(data)` refers to `data` as it is, so they
would read whatever comes after it in memory: frames then depend on that, and are sometimes damaged.
"""

from __future__ import annotations

from typing import Any

import av

from touchfs.core.extent import Buffer


def make_packet(data: Buffer) -> av.Packet[Any]:
    """A packet with a copy of `data`, and zeros behind it."""
    packet: av.Packet[Any] = av.Packet(len(data))
    packet.update(bytes(data))
    return packet
