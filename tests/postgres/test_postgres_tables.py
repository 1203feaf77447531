"""The tables in PostgreSQL: those that are damaged, that a user has too few rights for, or that are read-only now."""

from contextlib import closing

import pytest

from touchfs.core.errors import StateError
from touchfs.iterators.registry import Registry
from touchfs.postgres.place import FleetPlace, parse_address
from touchfs.postgres.store import PostgresStore

DAMAGED = "its tables are damaged: restore them, or choose another --state-name"


def fingerprint():
    return "fingerprint"


@pytest.fixture
def place(server, tmp_path):
    return server.place(tmp_path)


def opened(place, *, later=False):
    return closing(PostgresStore(place, fingerprint, later=later))


def refusal(place):
    with pytest.raises(StateError) as refused:
        PostgresStore(place, fingerprint)
    return str(refused.value)


class TestDamage:
    @pytest.mark.parametrize(
        "damage",
        [
            "DELETE FROM {0}.store",
            "INSERT INTO {0}.store SELECT * FROM {0}.store",
            "ALTER TABLE {0}.store ALTER lock DROP NOT NULL; UPDATE {0}.store SET lock = NULL",
            "ALTER TABLE {0}.store ALTER version TYPE text USING 'x'",
            "DROP TABLE {0}.store",
            *(
                pytest.param(damage, marks=pytest.mark.variant)
                for damage in (
                    "ALTER TABLE {0}.store ALTER fingerprint DROP NOT NULL; UPDATE {0}.store SET fingerprint = NULL",
                    "ALTER TABLE {0}.store ALTER lock TYPE text USING 'x'",
                    "ALTER TABLE {0}.store ALTER lock TYPE numeric USING 1.5",
                    "ALTER TABLE {0}.store DROP lock",
                )
            ),
        ],
    )
    def test_of_the_row_about_all(self, server, place, damage):
        with opened(place) as store:
            Registry(store).create("train")
        server.execute(damage.format(f'"{place.schema}"'))
        assert refusal(place) == f"{place.shown}: {DAMAGED}"

    @pytest.mark.parametrize(
        "damage",
        [
            "DROP TABLE {0}.iterator",
            "ALTER TABLE {0}.iterator DROP steps",
            "ALTER TABLE {0}.iterator ALTER name TYPE text USING 'x'",
        ],
    )
    def test_of_another_table(self, server, place, damage):
        with opened(place) as store:
            iterator = Registry(store).create("train")
            server.execute(damage.format(f'"{place.schema}"'))
            with pytest.raises(StateError, match=DAMAGED):
                store.run(
                    lambda connection: connection.execute(
                        "SELECT steps FROM iterator WHERE id = ? AND name = ?", (iterator, b"train")
                    ).fetchone()
                )


class TestRights:
    @pytest.fixture
    def theirs(self, server, place):
        """The place as a user without rights sees it, and what grants some to that user."""
        user = f"u{place.name}"
        server.execute(f"CREATE ROLE {user} LOGIN")
        address = parse_address(server.url.replace("postgres@", f"{user}@"))
        names = {"schema": f'"{place.schema}"', "user": user}
        yield (
            FleetPlace(address, place.name, place.directory),
            lambda statement: server.execute(statement.format(**names)),
        )
        server.execute(f"DROP OWNED BY {user} CASCADE")
        server.execute(f"DROP ROLE {user}")

    def test_to_create_a_schema(self, theirs):
        place, grant = theirs
        lacking = f"its user lacks CREATE on the database, which has no schema {place.schema}: see docs/fleets.md"
        assert lacking in refusal(place)
        grant("GRANT CREATE ON DATABASE postgres TO {user}")
        with opened(place) as store:
            Registry(store).create("train")

    def test_to_create_tables_in_an_empty_schema(self, theirs):
        place, grant = theirs
        grant("CREATE SCHEMA {schema}")
        assert f"its user lacks USAGE on the schema {place.schema}: see docs/fleets.md" in refusal(place)
        grant("GRANT USAGE ON SCHEMA {schema} TO {user}")
        assert f"its user lacks CREATE on the schema {place.schema}, which has no tables: see" in refusal(place)
        grant("GRANT CREATE ON SCHEMA {schema} TO {user}")
        with opened(place) as store, opened(place) as other:
            Registry(store).create("train")
            assert Registry(other).names() == ["train"]

    def test_to_use_tables_that_another_user_made(self, theirs, server, place):
        others = place
        place, grant = theirs
        with opened(others) as store:
            Registry(store).create("train")
        assert f"its user lacks USAGE on the schema {place.schema}: see docs/fleets.md" in refusal(place)
        grant("GRANT USAGE ON SCHEMA {schema} TO {user}")
        refused = refusal(place)
        assert "permission denied for table store: its user needs SELECT, INSERT, UPDATE and DELETE on the" in refused
        grant("GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {user}")
        with opened(place) as store:
            assert Registry(store).names() == ["train"]
            with pytest.raises(StateError, match="permission denied for table iterator"):
                Registry(store).create("test")
        grant("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}")
        with opened(place) as store:
            Registry(store).create("test")
            Registry(store).remove("train")

    def test_an_empty_schema_under_a_mount_gets_no_tables(self, server, place):
        with opened(place):
            pass
        server.execute(f'DROP SCHEMA "{place.schema}" CASCADE')
        server.execute(f'CREATE SCHEMA "{place.schema}"')
        with opened(place, later=True) as store, pytest.raises(StateError, match="is gone from the database"):
            Registry(store).names()


class TestReadOnly:
    READ_ONLY = "the database is read-only now: is this a standby?"

    @pytest.fixture
    def theirs(self, server, place):
        """The place for a user of its own, for whom the database can be made read-only and writable again."""
        user = f"u{place.name}"
        server.execute(f"CREATE ROLE {user} LOGIN SUPERUSER")

        def switch(how):
            server.execute(f"ALTER ROLE {user} SET default_transaction_read_only = {how}")

        yield (
            FleetPlace(parse_address(server.url.replace("postgres@", f"{user}@")), place.name, place.directory),
            switch,
        )
        server.execute(f"DROP OWNED BY {user} CASCADE")
        server.execute(f"DROP ROLE {user}")

    def test_is_told_in_one_line(self, theirs, caplog):
        """Which is all: psycopg logs nothing of it, which a command would show."""
        place, switch = theirs
        for has_tables in (False, True):
            if has_tables:
                PostgresStore(place, fingerprint).close()
            switch("on")
            with pytest.raises(StateError) as refused, opened(place) as store:
                Registry(store).create("train")
            assert str(refused.value) == f"{place.shown}: {self.READ_ONLY}"
            assert caplog.records == []
            switch("off")

    def test_it_is_waited_for_until_it_is_not(self, theirs):
        place, switch = theirs
        with opened(place) as store:
            iterator = Registry(store).create("train")
            switch("on")
        with opened(place) as store:
            assert Registry(store).find("train") == iterator, "it can be read"
            refused = []

            def change(connection):
                refused.append(connection)
                if len(refused) == 2:
                    switch("off")
                connection.execute("UPDATE iterator SET steps = 5 WHERE id = ?", (iterator,))

            store.run(change)
            assert len(refused) > 2
