"""Which zip archives are shards of samples, as the name of one does not tell.

An archive with members that are shards by their names is not one of samples: `zip://::FILE` names these.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from touchfs.containers.tar.samples import split_name
from touchfs.containers.zip.reader import ZipShard
from touchfs.core.errors import FormatError
from touchfs.format.idx import DATA_SUFFIX
from touchfs.registry.containers import AUDIO_LIST, container_named
from touchfs.shard.options import Options
from touchfs.source.archived.directory import read_directory
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files


def open_shard(path: str, options: Options, files: Files) -> ZipShard:
    """The samples of an archive. Raises FormatError if it is one of shards."""
    return ZipShard(path, options, files, _instead)


def instead(path: str) -> str:
    """What a file named as an archive is instead of one of samples; "" if it is one.

    Raises NotFoundError or SourceError.
    """
    with closing(DATA.open(path)) as file:
        file.open()
        try:
            return _instead(member.written for member in read_directory(file))
        except FormatError as error:
            return f"a zip archive, but damaged: {error.message}"


def _instead(names: Iterable[str]) -> str:
    """The first of these names of members that belongs to a sample of nothing but files that are shards by their names,
    in a text for users; "" if there is none.
    """
    first: dict[str, str] = {}
    others: set[str] = set()
    for name in names:
        if (split := split_name(name)) is None:
            continue
        if container_named(name) not in (None, AUDIO_LIST):
            first.setdefault(split[0], name)
        elif not name.endswith(DATA_SUFFIX):
            others.add(split[0])
    shard = next((name for key, name in first.items() if key not in others), None)
    return "" if shard is None else f"a zip archive that holds shards, as {shard}: zip://::FILE is all that is in it"
