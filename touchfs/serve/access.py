"""Access to the server: the address that it listens at, the names that a request may have for it, and the token."""

from __future__ import annotations

import base64
import hmac
import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from touchfs.core.errors import UsageError, map_os_errors
from touchfs.posix.private_file import read_private
from touchfs.serve.answer import refusal
from touchfs.serve.host_header import is_own_host

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@\s]+)):([0-9]{1,5})", re.ASCII)
_TOKEN = re.compile(rb"[!-~]{16,4096}")
_CHALLENGE = ("WWW-Authenticate", 'Basic realm="touchfs", charset="UTF-8"')


@dataclass(frozen=True, slots=True)
class ServeAddress:
    """A host as it was given, its address, and a port, 0 for any free one."""

    host: str
    address: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine reaches it."""
        return ipaddress.ip_address(self.address).is_loopback


def parse_address(text: str) -> ServeAddress:
    """Parse HOST:PORT or [ADDRESS]:PORT. Raises UsageError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) >= 1 << 16:
        raise UsageError(f"--http {text!r} is not HOST:PORT, for example 127.0.0.1:8080 or [::1]:8080")
    host = match[1] or match[2]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return ServeAddress(host, str(ipaddress.ip_address(found[0][4][0])), int(match[3]))
    except (OSError, ValueError) as error:
        raise UsageError(f"--http {text!r}: there is no such host") from error


def read_token(path: str) -> bytes:
    """The token in a file that only its owner can read. Raises UsageError, and the errors of `map_os_errors`."""
    with map_os_errors(path):
        token = read_private(path, 1 << 13).strip()
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            "a token is 16 to 4,096 visible characters of ASCII, for example `head -c 32 /dev/urandom | base64`",
            path=path,
        )
    return token


class HttpAccess:
    """Decides about requests. `host` is a name of the server besides `localhost`, this machine's name and addresses."""

    def __init__(self, host: str, token: bytes | None) -> None:
        self._names = {"localhost", socket.gethostname().lower(), host.lower()}
        self._token = token

    def check(self, environ: Mapping[str, str]) -> None:
        """Raises Refusal if the request comes from a page of another site, or lacks the token."""
        if not is_own_host(environ.get("HTTP_HOST", ""), self._names):
            raise refusal(HTTPStatus.MISDIRECTED_REQUEST, "this server has another name: use its address")
        given = _credentials(environ.get("HTTP_AUTHORIZATION", ""))
        if self._token is not None and not hmac.compare_digest(given, self._token):
            raise refusal(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong", (_CHALLENGE,))


def _credentials(header: str) -> bytes:
    """The token of a request: a bearer's, or the password of any user."""
    scheme, _, value = header.strip().partition(" ")
    encoded = value.strip().encode("latin-1", errors="replace")
    if scheme.lower() == "bearer":
        return encoded
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(encoded, validate=True).partition(b":")[2]
    except ValueError:
        return b""
