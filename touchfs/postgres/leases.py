"""The leases of mounts in PostgreSQL, by the database's clock.

A mount renews its lease when it enters the store, and enters it again while it uses it. Entering deletes what mounts
left whose leases have ended.
"""

from __future__ import annotations

from touchfs.store.iterator_store import Connection
from touchfs.store.open_table import rows_of

# A mount that did not enter for this time has ended, or asks whether the steps that it was making happened too late.
LEASE_SECONDS = 900
_LEASE = f"now() + interval '{LEASE_SECONDS} seconds'"
# A command has no mount, and deletes its row itself unless it was killed.
_COMMANDS_LEFT = "DELETE FROM process WHERE mount IS NULL AND seen < now() - interval '1 day'"


def enter_mount(connection: Connection, token: bytes) -> int:
    """Renew the lease of a mount, and return its number: a new one if the mount is new or was deleted."""
    renewed = f"UPDATE mount SET lease = {_LEASE} WHERE token = ? RETURNING id"
    found = connection.execute(renewed, (token,)).fetchone()
    if found is None:
        added = f"INSERT INTO mount (token, lease) VALUES (?, {_LEASE}) RETURNING id"
        found = connection.execute(added, (token,)).fetchone()
    for (ended,) in connection.execute("SELECT id FROM mount WHERE lease < now()").fetchall():
        _delete(connection, ended)
    connection.execute(_COMMANDS_LEFT)
    return int(found[0])


def leave_mount(connection: Connection, token: bytes) -> None:
    for (mount,) in connection.execute("SELECT id FROM mount WHERE token = ?", (token,)).fetchall():
        _delete(connection, mount)


def _delete(connection: Connection, mount: int) -> None:
    connection.execute("DELETE FROM written WHERE open BETWEEN ? AND ?", rows_of(mount))
    connection.execute("DELETE FROM open WHERE id BETWEEN ? AND ?", rows_of(mount))
    connection.execute("DELETE FROM mount WHERE id = ?", (mount,))
