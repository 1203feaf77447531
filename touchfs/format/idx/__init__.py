"""Index formats of other tools: MMIDIDX, Lhotse's, Energon's and NeMo's."""

from __future__ import annotations

# Of MMIDIDX: the index of a .bin, the two files' names, and the first bytes of the index.
INDEX_SUFFIX, DATA_SUFFIX = ".idx", ".bin"
MAGIC = b"MMIDIDX\0\0"
