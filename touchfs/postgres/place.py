"""The place of the iterators of a dataset in a PostgreSQL database, and the address of that as users give it: a URL
without a password, and how it may be connected to.

A password comes from `~/.pgpass` (PGPASSFILE) or a service file: those of a command line can be seen by all users.

Unless the server is on this machine, TLS with a verified name (`sslmode=verify-full`) is set here, so neither a service
file nor the environment can turn it off.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from touchfs.core.errors import MissingExtraError, UsageError
from touchfs.core.extras import install_hint

SCHEMES = ("postgresql://", "postgres://")
# Whatever else libpq understands would weaken what is said above, or hold a secret.
_ALLOWED = frozenset(
    {"host", "hostaddr", "port", "dbname", "user", "service", "passfile", "sslmode", "sslrootcert", "sslcert"}
    | {"sslkey", "sslcrl", "target_session_attrs", "channel_binding", "gssencmode"}
)
_VERIFIED = "verify-full"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,48}")


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """A database. `parameters` are those of libpq, none of them a secret. `shown` names it in errors and logs."""

    parameters: Mapping[str, str]
    shown: str


def parse_address(url: str, environment: Mapping[str, str] = os.environ) -> DatabaseAddress:
    """Parse a `postgresql://` URL. Raises UsageError, which never repeats the URL, and MissingExtraError."""
    try:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise MissingExtraError(
            f"a state store in PostgreSQL needs the postgres extra: `{install_hint('postgres')}`"
        ) from error
    if not url.startswith(SCHEMES):
        raise UsageError("--state-store is a URL such as postgresql://HOST/DATABASE")
    try:
        parameters = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except Error:
        raise UsageError(
            "--state-store is no URL that PostgreSQL understands, such as postgresql://HOST/DATABASE"
        ) from None
    if "password" in parameters:
        raise UsageError("--state-store must not contain a password, which others could see: put it into ~/.pgpass")
    if unknown := sorted(parameters.keys() - _ALLOWED):
        raise UsageError(f"--state-store: {unknown[0]!r:.80} cannot be set: {', '.join(sorted(_ALLOWED))} can")
    if not _is_on_this_machine({**_of_environment(environment), **parameters}):
        if parameters.get("sslmode", _VERIFIED) != _VERIFIED:
            raise UsageError(f"--state-store: over a network, sslmode is {_VERIFIED} and cannot be another")
        parameters["sslmode"] = _VERIFIED
    return DatabaseAddress(parameters, _shown(parameters))


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    names = {"host": "PGHOST", "hostaddr": "PGHOSTADDR", "service": "PGSERVICE"}
    return {name: environment[variable] for name, variable in names.items() if environment.get(variable)}


def _is_on_this_machine(parameters: Mapping[str, str]) -> bool:
    """True if all servers are. A service may name any server, so it counts only if it cannot name one."""
    addresses = parameters.get("hostaddr", "")
    if "service" in parameters and not addresses:
        return False
    hosts = addresses or parameters.get("host", "/")
    return all(_is_local(host) for host in hosts.split(","))


def _is_local(host: str) -> bool:
    if host == "localhost" or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(parameters: Mapping[str, str]) -> str:
    if "service" in parameters:
        return f"postgresql://?service={parameters['service']}"
    host, port = parameters.get("host", ""), parameters.get("port", "")
    place = "" if host.startswith("/") else f"{host}:{port}" if port and "," not in port else host
    return f"postgresql://{place}/{parameters.get('dbname', '')}"


@dataclass(frozen=True, slots=True)
class FleetPlace:
    """The iterators called `name` at `address`. Files that belong to them are in `directory`, on this machine. `mount`
    is a random token of the mount that uses them, or empty for a command that has none.
    """

    address: DatabaseAddress
    name: str
    directory: str
    mount: bytes = b""

    @property
    def schema(self) -> str:
        return f"touchfs_{self.name}"

    @property
    def shown(self) -> str:
        """Its name in errors and logs."""
        return f"{self.address.shown} (state {self.name})"


def check_state_name(name: str, source: str, split: str | None = None) -> str:
    """Return the name of the state of a source: the given one or, if that is empty, the last part of the source's path,
    and its split.

    Raises UsageError for a name that cannot be used.
    """
    chosen = name or ".".join([source.rstrip("/").rpartition("/")[2], *([] if split is None else [split])])
    if not _NAME.fullmatch(chosen):
        raise UsageError(f"choose a --state-name of letters, digits and _.-, at most 48: {chosen!r:.80} cannot be used")
    return chosen
