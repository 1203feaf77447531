"""Index formats of other tools: MMIDIDX, Lhotse's, Energon's and NeMo's."""

from __future__ import annotations

# Of MMIDIDX: the index of a .bin, the two files' names, and the first bytes of the index.
INDEX_SUFFIX, DATA_SUFFIX = ".idx", ".bin"
MAGIC = b"MMIDIDX\0\0"

# Of TouchNet: the modalities of sound, and of JSON about it. The second names are from TouchNet before March 2025, for
# the same bytes.
AUDIO_NAMES = frozenset({"audio", "pair_audio"})
METAINFO_NAMES = frozenset({"metainfo", "pair_text"})
