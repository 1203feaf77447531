"""What only a store in PostgreSQL has: a network that breaks, leases, a server that is away or is not to be trusted."""

import os
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
from counting import counting
from postgres_server import OWNER, Server

from touchfs.core.errors import StateError, TouchfsError, WouldWaitError
from touchfs.iterators.iterators import Iterators
from touchfs.iterators.registry import Registry
from touchfs.postgres.opens import FleetOpens
from touchfs.postgres.place import FleetPlace, parse_address
from touchfs.postgres.store import PostgresStore
from touchfs.store.open_table import OpenTable
from touchfs.store.patience import without_waiting

COUNT = 9


def fingerprint():
    return "fingerprint"


class Proxy:
    """Between a store and its server. It cuts the connection at the next COMMIT, before or after the server gets it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.cut = ""
        self.cuts = 0
        self._is_silent = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._carry(client)

    def _carry(self, client: socket.socket) -> None:
        """One connection at a time: until it is cut, or ends."""
        self._is_silent = False
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            back = threading.Thread(target=self._back, args=(server, client))
            back.start()
            with suppress(OSError):
                while data := client.recv(1 << 16):
                    if self.cut and b"COMMIT" in data:
                        how, self.cut, self.cuts = self.cut, "", self.cuts + 1
                        if how == "before":
                            break
                        self._is_silent = True
                    server.sendall(data)
            self._cut(client, server)
            back.join()

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if self._is_silent:
                    self._cut(client, server)
                    break
                client.sendall(data)

    def _cut(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def place(server, tmp_path):
    return server.place(tmp_path, mount=b"one")


@pytest.fixture
def store(place):
    with closing(PostgresStore(place, fingerprint)) as opened:
        yield opened


def another(place, mount=b"two"):
    return FleetPlace(place.address, place.name, place.directory, mount)


class TestCommitsThatAreLost:
    @pytest.fixture
    def proxy(self, server):
        with ExitStack() as stack:
            proxy = Proxy(server.port)
            stack.callback(proxy.close)
            yield proxy

    @pytest.fixture
    def behind(self, proxy, place, store):
        """A store of the same iterators, whose connections go through the proxy."""
        address = parse_address(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")
        with closing(PostgresStore(FleetPlace(address, place.name, place.directory, b"two"), fingerprint)) as opened:
            yield opened

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_change_is_made_once(self, proxy, behind, store, when):
        make = counting(store)
        for number in range(4):
            proxy.cut = when
            assert behind.run(make) == b"%d" % number
        assert proxy.cuts == 4
        assert store.run(make) == b"4"

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_change_of_another_thread_meanwhile_confirms_nothing(self, proxy, behind, store, when, monkeypatch):
        make, pause, others = counting(store), time.sleep, []

        def sleep(seconds):
            if not others and threading.current_thread() is threading.main_thread():
                thread = threading.Thread(target=lambda: others.append(behind.run(make)))
                thread.start()
                thread.join()
            pause(seconds)

        proxy.cut = when
        monkeypatch.setattr("touchfs.postgres.store.time.sleep", sleep)
        mine = behind.run(make)
        assert sorted([mine, *others]) == [b"0", b"1"]
        assert store.run(make) == b"2"

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_step_of_an_open_is_made_once(self, proxy, behind, store, when):
        make, table = counting(store), OpenTable()
        opens = FleetOpens(behind, table, os.getpid())
        for number in range(4):
            opened = opens.open()
            proxy.cut = when
            assert opens.text(opened, make) == opens.text(opened, make) == b"%d" % number
        assert proxy.cuts == 4
        assert store.run(make) == b"4"

    def test_a_successor_finds_the_step_that_its_predecessor_never_heard_of(self, proxy, behind, place, store):
        """As when the worker is killed while it waits for the answer to COMMIT."""
        make, table = counting(store), OpenTable()
        opens, successor_store = FleetOpens(behind, table, os.getpid()), PostgresStore(another(place), fingerprint)
        opens.text(opens.open(), make)
        opened = opens.open()
        proxy.cut = "after"
        behind._connect = lambda **how: (_ for _ in ()).throw(SystemExit)  # it does not live to try again
        with pytest.raises(SystemExit):
            opens.text(opened, make)
        with closing(successor_store):
            assert FleetOpens(successor_store, table, os.getpid()).text(opened, make) == b"1"
        assert store.run(make) == b"2"


class TestLeases:
    def end(self, server, place):
        server.execute(f"UPDATE \"{place.schema}\".mount SET lease = now() - interval '1 second'")

    def count(self, server, place, table):
        return server.execute(f'SELECT count(*) FROM "{place.schema}".{table}')[0][0]

    def test_what_a_mount_left_is_deleted_when_its_lease_has_ended(self, server, place, store):
        make, opens = counting(store), FleetOpens(store, OpenTable(), 1)
        opens.text(opens.open(), make)
        with closing(PostgresStore(another(place), fingerprint)) as other:
            others = FleetOpens(other, OpenTable(), 2)
            others.text(others.open(), make)
            assert (self.count(server, place, "mount"), self.count(server, place, "open")) == (2, 2)
        self.end(server, place)
        with closing(PostgresStore(another(place, b"three"), fingerprint)) as third:
            thirds = FleetOpens(third, OpenTable(), 3)
            thirds.text(thirds.open(), make)
        assert (self.count(server, place, "mount"), self.count(server, place, "open")) == (1, 1)

    def test_a_mount_whose_lease_has_ended_goes_on(self, server, place, store):
        """But not with the step that was in doubt: nobody knows any more whether it was made."""
        make, table = counting(store), OpenTable()
        opens = FleetOpens(store, table, 1)
        read, doubtful = opens.open(), opens.open()
        assert opens.text(read, make) == b"0"
        table.mark_row(doubtful)  # as if a worker was killed between a step and its answer
        self.end(server, place)
        with closing(PostgresStore(another(place), fingerprint)) as other:
            FleetOpens(other, OpenTable(), 2).text(0, make)  # cleans up
        with suppress(StateError):
            opens.text(doubtful, make)
        with pytest.raises(StateError, match="lease"):
            opens.text(doubtful, make)
        assert opens.text(read, make) == b"0", "what is known stays"
        assert opens.text(opens.open(), make) == b"1"

    def test_a_mount_that_leaves_leaves_nothing(self, server, place, store):
        opens = FleetOpens(store, OpenTable(), 1)
        opens.text(opens.open(), counting(store))
        store.leave()
        assert [self.count(server, place, table) for table in ("mount", "open", "process", "written")] == [0, 0, 0, 0]

    def test_a_command_leaves_nothing(self, server, place):
        with closing(PostgresStore(another(place, b""), fingerprint)) as command:
            command.run(counting(command))
            assert self.count(server, place, "process") == 1
        assert self.count(server, place, "process") == 0


def test_who_must_not_wait_is_told(store):
    for call in (lambda: store.run(lambda connection: 1), lambda: store.transaction().__enter__()):
        with pytest.raises(WouldWaitError):
            without_waiting(call)


def test_a_wrong_statement_changes_nothing(store):
    make = counting(store)

    def failing(connection):
        make(connection)
        connection.execute("SELECT * FROM missing").fetchall()

    with pytest.raises(StateError):
        store.run(failing)
    assert store.run(make) == b"0"


def test_an_error_that_somebody_swallows_still_undoes_all(store):
    make = counting(store)

    def swallowing(connection):
        make(connection)
        with suppress(StateError):
            store.run(lambda connection: connection.execute("SELECT * FROM missing").fetchall())

    with pytest.raises(StateError):
        store.run(swallowing)
    assert store.run(make) == b"0"


def test_rows_that_somebody_planted(server, place, store, dataset):
    iterators = Iterators(store, dataset)
    registry, planted = Registry(store), [b"../x", b"\xff", b"", b"a/b", b".", b"x" * 300]
    good = registry.create("good")
    for name in planted:
        server.execute(
            f'INSERT INTO "{place.schema}".iterator (name, spec, made, maker) VALUES (%s, %s, 0, %s)', name, "{}", ""
        )
    assert registry.named() == [(b"good", good)]
    for column, value in [("steps", -1), ("steps", 1 << 40), ("base", "{"), ("base", "[" * 10_000), ("spec", "[]")]:
        server.execute(
            f'UPDATE "{place.schema}".iterator SET base = spec, {column} = %s WHERE name = %s'.replace(
                "base = spec, base", "base"
            ),
            value,
            b"good",
        )
        with pytest.raises(TouchfsError):
            iterators.read(good, "next")


def test_another_dataset_is_refused(place, store):
    for later in (False, True):
        with pytest.raises(StateError, match="another dataset"):
            PostgresStore(place, lambda: "another", later=later).run(lambda connection: 1)


def test_another_version_is_refused(server, place, store):
    server.execute(f'UPDATE "{place.schema}".store SET version = 99')
    with pytest.raises(StateError, match="version 99"):
        PostgresStore(place, fingerprint)


def test_tables_that_are_gone_are_not_made_anew_under_a_mount(server, place, store):
    server.execute(f'DROP SCHEMA "{place.schema}" CASCADE')
    with closing(PostgresStore(place, fingerprint, later=True)) as later, pytest.raises(StateError, match="is gone"):
        later.run(lambda connection: 1)


def test_two_that_begin_at_once_make_one_schema(server, tmp_path):
    place, stores = server.place(tmp_path), []
    threads = [threading.Thread(target=lambda: stores.append(PostgresStore(place, fingerprint))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each._lock_key for each in stores}) == 1
    assert len(stores) == 6
    for each in stores:
        each.close()


def test_a_server_that_may_lose_steps_is_refused(server, tmp_path):
    server.execute("CREATE ROLE careless LOGIN")
    server.execute("GRANT CREATE ON DATABASE postgres TO careless")
    server.execute("ALTER ROLE careless SET synchronous_commit = off")
    address = parse_address(server.url.replace("postgres@", "careless@"))
    with pytest.raises(StateError, match="synchronous_commit is off"):
        PostgresStore(FleetPlace(address, "careless", str(tmp_path)), fingerprint)


def test_a_user_without_rights_is_told(server, tmp_path):
    server.execute("CREATE ROLE guest LOGIN")
    address = parse_address(server.url.replace("postgres@", "guest@"))
    with pytest.raises(StateError, match="lacks CREATE on the database"):
        PostgresStore(FleetPlace(address, "guest", str(tmp_path)), fingerprint)


@contextmanager
def impatient(monkeypatch):
    """A database that is away is waited for 1 s, not 5 s."""
    with monkeypatch.context() as patch:
        patch.setattr("touchfs.postgres.store.AWAY_SECONDS", 1.0)
        yield


def test_a_server_that_stops_is_given_up(own_server, tmp_path, monkeypatch):
    monkeypatch.setattr("touchfs.postgres.connection.ANSWER_SECONDS", 0.5)
    monkeypatch.setattr("touchfs.postgres.connection.CONNECT_SECONDS", 2)  # libpq has no less
    with closing(PostgresStore(own_server.place(tmp_path), fingerprint)) as store:
        make = counting(store)
        own_server.pause()
        try:
            with impatient(monkeypatch), pytest.raises(StateError, match="cannot be reached"):
                store.run(make)
        finally:
            own_server.resume()
        assert store.run(make) == b"0"


def test_a_process_that_stops_inside_a_transaction_does_not_stop_the_fleet(server, place, store, monkeypatch):
    make = counting(store)
    monkeypatch.setattr("touchfs.postgres.connection._SETTINGS", {"idle_in_transaction_session_timeout": "300ms"})
    with closing(PostgresStore(place, fingerprint)) as stopping:
        with pytest.raises(StateError), stopping.transaction() as connection:
            make(connection)
            assert store.run(make) == b"0", "as soon as the server has ended the other"
        assert stopping.run(make) == b"1"


def test_a_password_comes_from_its_file_and_is_in_no_message(server, tmp_path, monkeypatch):
    server.execute("CREATE ROLE guarded LOGIN PASSWORD 'hunter2'")
    server.execute("GRANT CREATE ON DATABASE postgres TO guarded")
    address = parse_address(server.url.replace("postgres@", "guarded@"))
    place = FleetPlace(address, f"guarded{os.getpid()}", str(tmp_path))
    passwords = tmp_path / "pgpass"
    passwords.write_text("*:*:*:*:hunter3\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", os.fspath(passwords))
    with pytest.raises(StateError) as refused:
        PostgresStore(place, fingerprint)
    assert "hunter" not in str(refused.value)
    passwords.write_text("*:*:*:*:hunter2\n")
    PostgresStore(place, fingerprint).close()


def certify(key, certificate, *names):
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]  # the quickest to make
    made = ["openssl", "req", "-x509", *kind, "-nodes", "-days", "2", *names, "-keyout", key, "-out", certificate]
    subprocess.run(made, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certified(postgres_data):
    """A server with a certificate for 127.0.0.1."""
    with closing(Server(template=postgres_data)) as server:
        key, certificate = server.directory / "key.pem", server.directory / "certificate.pem"
        certify(key, certificate, "-subj", "/CN=database", "-addext", "subjectAltName=IP:127.0.0.1")
        for path in (key, certificate):
            os.chown(path, OWNER.pw_uid, OWNER.pw_gid)
            path.chmod(0o600 if path == key else 0o644)
        server.kill()
        server.settings |= {"ssl": "on", "ssl_key_file": str(key), "ssl_cert_file": str(certificate)}
        server.start()
        yield server, certificate


class TestTls:
    def test_only_a_server_whose_name_is_verified_gets_a_connection(self, certified, tmp_path):
        """`service` is a way to another machine, so TLS is verified even here."""
        server, certificate = certified
        verified = f"{server.url}?sslmode=verify-full&sslrootcert="
        place = FleetPlace(parse_address(f"{verified}{certificate}"), "verified", str(tmp_path))
        with closing(PostgresStore(place, fingerprint)) as store:
            used = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert store.run(lambda connection: connection.execute(used).fetchone()) == (True,)
        other = tmp_path / "other.pem"
        certify(tmp_path / "key", other, "-subj", "/CN=other")
        with pytest.raises(StateError, match="certificate verify failed"):
            PostgresStore(FleetPlace(parse_address(f"{verified}{other}"), "verified", str(tmp_path)), fingerprint)

    def test_a_service_file_says_where_the_server_is_and_who_asks(self, certified, tmp_path, monkeypatch):
        """With the password, and the certificate by which its name is verified."""
        server, certificate = certified
        server.execute("CREATE ROLE guarded LOGIN PASSWORD 'hunter2'")
        server.execute("GRANT CREATE ON DATABASE postgres TO guarded")
        services = tmp_path / "services"
        monkeypatch.setenv("PGSERVICEFILE", os.fspath(services))
        place = FleetPlace(parse_address("postgresql://?service=fleet"), "service", str(tmp_path))
        server_of = f"[fleet]\nhost=127.0.0.1\nport={server.port}\ndbname=postgres\nuser=guarded\n"
        services.write_text(f"{server_of}sslrootcert={certificate}\npassword=hunter3\n")
        with pytest.raises(StateError) as refused:
            PostgresStore(place, fingerprint)
        assert "hunter" not in str(refused.value)
        services.write_text(f"{server_of}sslrootcert={certificate}\npassword=hunter2\n")
        with closing(PostgresStore(place, fingerprint)) as store:
            used = "SELECT ssl, current_user FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert store.run(lambda connection: connection.execute(used).fetchone()) == (True, "guarded")

    def test_a_server_without_tls_over_a_network_is_refused(self, server, tmp_path, monkeypatch):
        services = tmp_path / "services"
        services.write_text(f"[fleet]\nhost=127.0.0.1\nport={server.port}\nuser=postgres\nsslmode=disable\n")
        monkeypatch.setenv("PGSERVICEFILE", os.fspath(services))
        address = parse_address("postgresql:///postgres?service=fleet")
        with pytest.raises(StateError, match=r"SSL|root certificate"):
            PostgresStore(FleetPlace(address, "fleet", str(tmp_path)), fingerprint)


class TestAway:
    def test_a_server_that_comes_back_in_time_is_waited_for(self, own_server, tmp_path, monkeypatch):
        monkeypatch.setattr("touchfs.postgres.store.AWAY_SECONDS", 60.0)
        with closing(PostgresStore(own_server.place(tmp_path), fingerprint)) as store:
            make = counting(store)
            assert store.run(make) == b"0"
            own_server.kill()
            starting = threading.Thread(target=own_server.start)
            starting.start()
            assert store.run(make) == b"1"
            starting.join()

    def test_one_that_does_not_is_an_error_in_bounded_time(self, own_server, tmp_path, monkeypatch):
        with closing(PostgresStore(own_server.place(tmp_path), fingerprint)) as store:
            make = counting(store)
            own_server.kill()
            begin = time.monotonic()
            with impatient(monkeypatch), pytest.raises(StateError, match=r"cannot be reached: .*Connection refused$"):
                store.run(make)
            assert time.monotonic() - begin < 20
            own_server.start()
            assert store.run(make) == b"0"
