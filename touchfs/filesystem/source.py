"""Where the dataset of a filesystem is: what fsspec hands over for a chain of URLs, as one path or URL of ours.

For `touchfs://x.wav::s3://bucket/data`, fsspec calls us with `fo="bucket/data"`, `target_protocol="s3"` and the options
of s3 in `target_options`. If the chain goes on, as with a dataset in a ZIP archive, the latter has a `fo`, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from touchfs.core.errors import ArgumentValueError
from touchfs.core.location import Location
from touchfs.core.urls import InArchive, parse_in_archive

_LOCAL = frozenset({"file", "local"})
# Clients that fsspec tells the host as an option, not in the path.
_HOSTED = frozenset({"sftp", "ssh", "ftp"})


class TargetSource(NamedTuple):
    """A path or URL of a dataset, and the options for the client of the URL, or of the archive that it is in."""

    path: str
    options: dict[str, Any]

    @property
    def stored(self) -> str:
        """The path or URL of what the store has: the dataset, or the archive."""
        place = parse_in_archive(self.path)
        return self.path if place is None else place.archive


def target_source(fo: str, protocol: str | None, options: Mapping[str, Any] | None) -> TargetSource:
    """The dataset that fsspec's three arguments name. Raises ArgumentValueError."""
    options = dict(options or {})
    if not fo and "fo" not in options:
        raise ArgumentValueError("name a dataset: touchfs://PATH::DATASET, or fo=DATASET")
    if "fo" in options:
        archive = target_source(options["fo"], options.get("target_protocol"), options.get("target_options"))
        if protocol != "zip" or archive.stored != archive.path:
            raise ArgumentValueError(
                "of chains only a ZIP archive in a store or on this machine is read. touchfs keeps what it reads, so "
                "`simplecache` and the like are not needed"
            )
        return TargetSource(InArchive(archive.path, fo.strip("/")).path, archive.options)
    is_url = Location.of(fo).is_url
    if protocol in _LOCAL or (protocol is None and not is_url):
        return TargetSource(os.path.abspath(fo), {})
    if protocol is None or is_url:
        return TargetSource(fo, options)
    if protocol in _HOSTED and "host" in options:
        host, port = options.pop("host"), options.pop("port", None)
        return TargetSource(f"{protocol}://{host}{'' if port is None else f':{port}'}/{fo.lstrip('/')}", options)
    return TargetSource(f"{protocol}://{fo.lstrip('/')}", options)
