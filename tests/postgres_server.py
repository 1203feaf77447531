"""A real PostgreSQL: a server of the tests' own, on loopback, that can be killed and started again."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest
from processes import children, runs

from touchfs.store.postgres.address import parse_address
from touchfs.store.postgres.place import FleetPlace

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))[-1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """The server, as the user `postgres` since it refuses root. `url` is that of a database in it."""

    def __init__(self, where: Path | str | None = None, **settings: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="touchfs-postgres-", dir=where))
        self.port = free_port()
        # An address, as a name would have to be looked up at each start.
        self.settings = {
            "listen_addresses": "127.0.0.1",
            "synchronous_commit": "on",
            "max_connections": "60",
            "shared_buffers": "32MB",
            **settings,
        }
        self.owner = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        shutil.chown(self.directory, self.owner.pw_uid, self.owner.pw_gid)
        self.directory.chmod(0o755)
        self._run("initdb", "--pgdata", self.data, "--auth", "trust", "--username", "postgres", "--no-sync")
        (self.data / "pg_hba.conf").write_text(
            "local all all trust\nhost all guarded 127.0.0.1/32 scram-sha-256\nhostssl all all all trust\n"
            "host all all 127.0.0.1/32 trust\n"
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _as_owner(self) -> dict[str, object]:
        return {"user": self.owner.pw_uid, "group": self.owner.pw_gid} if os.geteuid() == 0 else {}

    def place(self, directory: Path | str, *, name: str = "", mount: bytes = b"") -> FleetPlace:
        """Iterators of a new name, unless it is given."""
        return FleetPlace(parse_address(self.url), name or f"x{secrets.token_hex(6)}", str(directory), mount)

    def _run(self, program: str, *arguments: object) -> None:
        command = [PROGRAMS / program, *map(str, arguments)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.directory, **self._as_owner())

    def start(self) -> None:
        settings = [f"--{name}={value}" for name, value in self.settings.items()]
        command = [PROGRAMS / "postgres", "-D", self.data, "-p", str(self.port), "-k", self.directory, *settings]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.directory, start_new_session=True, **self._as_owner()
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                return psycopg.connect(self.url, connect_timeout=2).close()
            except psycopg.OperationalError:
                assert self.process.poll() is None, (self.directory / "log").read_text()
                assert time.monotonic() < deadline, (self.directory / "log").read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        """As a crash of its machine: what was not durable is lost."""
        self.process.send_signal(signal.SIGSTOP)  # it must start no more of them
        everyone = self._processes()
        for pid in everyone:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        # As long as one of them has the shared memory, a new server refuses to start.
        while any(map(runs, everyone)):
            time.sleep(0.01)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def pause(self) -> None:
        """As if the network swallowed all packets."""
        for pid in self._processes():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._processes():
            os.kill(pid, signal.SIGCONT)

    def _processes(self) -> list[int]:
        return [self.process.pid, *children(self.process.pid)]

    def execute(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # a fast shutdown
            self.process.wait(60)
        shutil.rmtree(self.directory)


@pytest.fixture(scope="session")
def server():
    """For tests that do not harm it."""
    server = Server()
    yield server
    server.end()


@pytest.fixture
def own_server():
    """For a test that kills it, or changes its settings."""
    server = Server()
    yield server
    server.end()
