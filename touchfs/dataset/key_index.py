"""The index of keys of a dataset: opened if it is that of the shards, else built from their catalogs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from touchfs.catalog.keys import Keys, join_identities
from touchfs.core.errors import FormatError, NotFoundError, SourceError, TouchfsError, UntrustedError, UnwritableError
from touchfs.dataset.shard import Shard

if TYPE_CHECKING:
    from touchfs.catalog.key_builder import KeyedShard


def open_keys(
    path: str,
    source: str,
    shards: Sequence[Shard],
    executor: Executor | None,
    distrusted: list[str],
    damaged: list[str],
    *,
    force: bool,
) -> Keys | str:
    """Open the index of keys at `path`, or make it there. Returns a reason instead if these shards have none.

    The path is added to `damaged` if what is there is damaged, and the reason to `distrusted` if it is not trusted.
    """
    identities = [shard.identity for shard in shards]
    known = None
    if not force:
        try:
            known = Keys(path, source)
            if known.identities != join_identities(identities):
                known.check()  # its entries become those of another index
        except UntrustedError as error:
            distrusted.append(str(error))
        except FormatError:
            known = None
            damaged.append(path)
        except (NotFoundError, SourceError):
            known = None
    if known is None or known.identities != join_identities(identities):
        from touchfs.catalog.key_builder import build_keys  # an index that is there is opened without it

        keyed = keyed_shards(shards)
        try:
            try:
                build_keys(path, keyed, known, executor)
            except FormatError:
                build_keys(path, keyed, None, executor)
            known = Keys(path, source)
        except (UntrustedError, UnwritableError):
            raise
        except TouchfsError as error:
            return str(error)
    return known if len(known) else "no sample has a key of its own"


def keyed_shards(shards: Sequence[Shard]) -> list[KeyedShard]:
    """The shards as the index of keys is built from them."""
    from touchfs.catalog.key_builder import KeyedShard

    own = [shard.base for shard in shards]  # overlays have no keys for it
    return [KeyedShard(shard.identity, shard.samples, shard.catalog, shard.path) for shard in own]
