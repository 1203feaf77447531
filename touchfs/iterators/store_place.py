"""The place in which the iterators of a dataset are kept, and the stores and open files at that place.

Nothing else knows the stores in PostgreSQL. psycopg is imported only for one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from touchfs.postgres.place import DatabaseAddress, FleetPlace, check_state_name, parse_address
from touchfs.store.iterator_store import IteratorStore
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.store import StateStore

if TYPE_CHECKING:
    from touchfs.postgres.store import PostgresStore


@dataclass(frozen=True, slots=True)
class StateDatabase:
    """A database that keeps iterators, and their name in it, empty for that of the dataset."""

    address: DatabaseAddress
    name: str

    @classmethod
    def parse(cls, url: str, name: str) -> StateDatabase:
        """The database at a `postgresql://` URL. Raises UsageError and MissingExtraError."""
        return cls(parse_address(url), name)

    def place(self, source: str, split: str | None, directory: str, mount: bytes = b"") -> FleetPlace:
        """The place of the iterators of a source, or of a split. Raises UsageError for a name that cannot be used."""
        return FleetPlace(self.address, check_state_name(self.name, source, split), directory, mount)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The path of a state store on this machine, and the identity of the store that is expected there. The iterators
    are in it, or in the `fleet`'s database.
    """

    path: str
    identity: bytes
    fleet: FleetPlace | None = None

    def iterator_store(self, fingerprint: Callable[[], str], *, fsync: bool) -> IteratorStore:
        """The store of the iterators of a dataset with a fingerprint, which is connected at its first use."""
        if self.fleet is not None:
            return fleet_store(self.fleet, fingerprint, later=True)
        return StateStore(self.path, fsync=fsync, later=True, identity=self.identity)

    def opens(self, store: IteratorStore, table: OpenTable, pid: int) -> Opens:
        """The open files of the mount that the process `pid` serves."""
        if self.fleet is not None:
            from touchfs.postgres.opens import FleetOpens

            return FleetOpens(store, table, pid)
        return Opens(store, table, pid)


def fleet_store(place: FleetPlace, fingerprint: Callable[[], str] | None, *, later: bool = False) -> PostgresStore:
    """The store in a database, with its tables made if there are none. With `later`, it connects at its first use."""
    from touchfs.postgres.store import PostgresStore

    return PostgresStore(place, fingerprint, later=later)
