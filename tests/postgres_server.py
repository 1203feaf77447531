"""A real PostgreSQL: servers of the tests' own, on loopback, one for all tests and others that can be killed."""

import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from filelock import FileLock
from ports import free_port
from processes import children, runs
from waiting import wait_until

from touchfs.postgres.place import FleetPlace, parse_address

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))[-1]
OWNER = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
SETTINGS = {
    # An address, as a name would have to be looked up at each start.
    "listen_addresses": "127.0.0.1",
    "synchronous_commit": "on",
    # What a server has written outlives its kill, if not a crash of the machine.
    "fsync": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
}
ACCESS = """
local all all trust
host all guarded 127.0.0.1/32 scram-sha-256
hostssl all all all trust
host all all 127.0.0.1/32 trust
"""


def run(program: str, *arguments: object) -> None:
    """As the user `postgres`, since a server refuses root."""
    command = [PROGRAMS / program, *map(str, arguments)]
    user = {"user": OWNER.pw_uid, "group": OWNER.pw_gid} if os.geteuid() == 0 else {}
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/", **user)


class FoundServer:
    """The server in a directory, whoever has started it. `url` is that of a database in it."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.settings = dict(SETTINGS)

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def place(self, directory: Path | str, *, name: str = "", mount: bytes = b"") -> FleetPlace:
        """Iterators of a new name, unless it is given."""
        return FleetPlace(parse_address(self.url), name or f"x{secrets.token_hex(6)}", str(directory), mount)

    def start(self) -> None:
        settings = " ".join(f"--{name}={value}" for name, value in self.settings.items())
        options = f"-p {self.port} -k {self.directory} {settings}"
        log = self.directory / "log"
        run("pg_ctl", "start", "--silent", "--wait", "-t", 60, "-D", self.data, "-l", log, "-o", options)

    def kill(self) -> None:
        """What it had not written is lost."""
        process = self._process()
        os.kill(process, signal.SIGSTOP)  # it must start no more of them
        everyone = [process, *children(process)]
        for pid in everyone:
            os.kill(pid, signal.SIGKILL)
        # As long as one of them has the shared memory, a new server refuses to start.
        wait_until(lambda: not any(map(runs, everyone)))
        # Its number is in use until somebody has waited for it, who may not be in a hurry.
        for lock in (self.data / "postmaster.pid", self.directory / f".s.PGSQL.{self.port}.lock"):
            lock.unlink(missing_ok=True)

    def pause(self) -> None:
        """As if the network swallowed all packets."""
        for pid in (self._process(), *children(self._process())):
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in (self._process(), *children(self._process())):
            os.kill(pid, signal.SIGCONT)

    def _process(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def execute(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        if (self.data / "postmaster.pid").exists():
            run("pg_ctl", "stop", "--silent", "--wait", "--mode", "immediate", "-D", self.data)
        shutil.rmtree(self.directory)

    end = close  # tests/bench/fleet.py says so


class Server(FoundServer):
    """A new server: of a copy of the data of another one if there is a `template`, as to make it takes a second."""

    def __init__(self, where: Path | str | None = None, *, template: Path | None = None) -> None:
        super().__init__(new_directory(where), free_port())
        if template is None:
            make_data(self.data)
        else:
            subprocess.run(["cp", "-a", template, self.data], check=True)
        self.start()


def new_directory(where: Path | str | None = None) -> Path:
    """For the user `postgres`, who may not enter those of pytest."""
    directory = Path(tempfile.mkdtemp(prefix="touchfs-postgres-", dir=where))
    shutil.chown(directory, OWNER.pw_uid, OWNER.pw_gid)
    directory.chmod(0o755)
    return directory


def make_data(data: Path) -> None:
    run("initdb", "--pgdata", data, "--auth", "trust", "--username", "postgres", "--no-sync", "--no-instructions")
    (data / "pg_hba.conf").write_text(ACCESS)


def place_of_run(factory: pytest.TempPathFactory) -> Path:
    """A directory of all processes that run tests now: pytest-xdist gives each its own below it."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def postgres_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a server that nobody has used, made once."""
    template = place_of_run(tmp_path_factory) / "postgres"
    with FileLock(f"{template}.lock"):
        if not template.exists():
            directory = new_directory()
            make_data(directory / "data")
            shutil.move(directory / "data", template)
            directory.rmdir()
    return template


@pytest.fixture(scope="session")
def server(postgres_data: Path) -> Iterator[FoundServer]:
    """One for all tests that do not harm it, whichever processes run them: the last of these ends it.

    A process that runs the tests of two rooms uses it twice.
    """
    found = postgres_data.with_name("postgres.json")
    lock = FileLock(f"{found}.lock")

    def users() -> list[int]:
        return list(filter(runs, json.loads(found.read_text())["users"])) if found.exists() else []

    def note(now: list[int]) -> None:
        found.write_text(json.dumps({"directory": str(server.directory), "port": server.port, "users": now}))

    with lock:
        if found.exists():
            state = json.loads(found.read_text())
            server = FoundServer(Path(state["directory"]), state["port"])
        else:
            server = Server(template=postgres_data)
        note([*users(), os.getpid()])
    yield server
    with lock:
        left = users()
        left.remove(os.getpid())
        if left:
            note(left)
        else:
            found.unlink()
            server.close()


@pytest.fixture
def own_server(postgres_data: Path) -> Iterator[Server]:
    """For a test that kills it, or changes its settings."""
    with closing(Server(template=postgres_data)) as server:
        yield server
