"""The place in which the iterators of a dataset are kept, and the stores and open files at that place.

psycopg is imported only for a store in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from touchfs.store.iterator_store import IteratorStore
from touchfs.store.open_table import OpenTable
from touchfs.store.opens import Opens
from touchfs.store.postgres.address import DatabaseAddress
from touchfs.store.postgres.place import FleetPlace, check_state_name
from touchfs.store.store import StateStore


@dataclass(frozen=True, slots=True)
class StateDatabase:
    """A database that keeps iterators, and their name in it, empty for that of the dataset."""

    address: DatabaseAddress
    name: str

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
            from touchfs.store.postgres.store import PostgresStore

            return PostgresStore(self.fleet, fingerprint, later=True)
        return StateStore(self.path, fsync=fsync, later=True, identity=self.identity)

    def opens(self, store: IteratorStore, table: OpenTable, pid: int) -> Opens:
        """The open files of the mount that the process `pid` serves."""
        if self.fleet is not None:
            from touchfs.store.postgres.opens import FleetOpens

            return FleetOpens(store, table, pid)
        return Opens(store, table, pid)
