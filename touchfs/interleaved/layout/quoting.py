"""Names of tar members that hold a sample: the sample's id, quoted.

Readers of WebDataset cut a member's name at its first dot: what comes before is the key of the sample. So dots of an id
are quoted as well, which `urllib` and NeMo Curator do not do.
"""

from __future__ import annotations

from urllib.parse import quote


def quote_id(sample_id: str) -> str:
    """Return an id as a name without dots and slashes. Two ids never get the same name.

    Lone surrogates, which JSON can hold, are quoted byte by byte.
    """
    return quote(sample_id, safe="", errors="surrogatepass").replace(".", "%2E")
