"""The header `Host` of a request, which says by which name its server was asked.

A page of any web site can have its visitor's browser send requests to this machine. If the site's name is made to mean
127.0.0.1 (DNS rebinding), the page may read the answers, too; but then its name is in the header. No site has an
address as its name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@,\s]+))(?::[0-9]{0,5})?", re.ASCII)


def is_own_host(header: str, names: Collection[str]) -> bool:
    """True if a header is an address, or one of these names, which are in lower case; either may have a port."""
    if (match := _HOST.fullmatch(header)) is None:
        return False
    host = (match[1] or match[2]).lower().removesuffix(".")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host in names
    return True
