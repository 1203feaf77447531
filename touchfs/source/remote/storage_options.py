"""Options of the clients of stores: `--storage-option` and `--options-file`, and what limits all requests.

Options are not for secrets, which others may see in the list of processes. They come from the environment, from the
clients' own files, or from a file that only its owner can read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.posix.private_file import read_private

OPTIONS_VARIABLE, FILE_VARIABLE, TIMEOUT_VARIABLE = (
    "TOUCHFS_STORAGE_OPTIONS",
    "TOUCHFS_OPTIONS_FILE",
    "TOUCHFS_STORE_TIMEOUT",
)
REVALIDATE_VARIABLE, IMMUTABLE_VARIABLE = "TOUCHFS_REVALIDATE", "TOUCHFS_ASSUME_IMMUTABLE"
REQUESTS_VARIABLE = "TOUCHFS_REQUESTS"
_VARIABLES = (
    OPTIONS_VARIABLE,
    FILE_VARIABLE,
    TIMEOUT_VARIABLE,
    REVALIDATE_VARIABLE,
    IMMUTABLE_VARIABLE,
    REQUESTS_VARIABLE,
)
# How long a read may take with all its attempts, and how long a file counts as unchanged, in seconds.
TIMEOUT_SECONDS, REVALIDATE_SECONDS = 300.0, 10.0
# Requests at once. Browsers and clients of S3 send 6 to 10 to a host; far stores need more of them.
REQUESTS = 16
_FILE_MAX = 1 << 20
# Short ones only as a whole word: others are in `author` and `passive`.
_SECRET = re.compile(
    r"key|secret|token|password|passwd|passphrase|sas|credential|signature|connection_?string"
    r"|(^|_)(pass|pwd|bearer|auth|authorization)(_|$)",
    re.IGNORECASE,
)
# A URL with a user or a query, `user:password@host` without a scheme, and a named secret: `{"Authorization": "…"}`. The
# name of a host, as in `http://keys:9000`, is not one.
_SECRET_VALUE = re.compile(
    r"://.*[@?]|^[^/@:]+:[^@]*@"
    r"|^(?!\w+://).*(key|secret|token|passw(or)?d|authorization|credential|signature)\w*[\"']?\s*[:=]",
    re.DOTALL | re.IGNORECASE,
)
_VALUES: dict[str, Any] = {"true": True, "false": False, "none": None}


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Options for every client, as JSON; and a file with further options: `{"s3": {"endpoint_url": "…"}}`.

    If files are `immutable`, one of a size is the same tomorrow, even if its store has neither etags nor times.
    """

    options: str = "{}"
    file: str | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    revalidate_seconds: float = REVALIDATE_SECONDS
    immutable: bool = False
    requests: int = REQUESTS

    @classmethod
    def configured(cls) -> StorageOptions:
        """The options that the environment sets. Raises UsageError."""
        return _parsed(*map(os.environ.get, _VARIABLES))

    def of(self, scheme: str) -> dict[str, Any]:
        """The options for the client of a scheme. Raises UsageError."""
        parsed = _object(self.options, f"${OPTIONS_VARIABLE}")
        if self.file is not None:
            within = _read(self.file).get(scheme, {})
            if not isinstance(within, dict):
                raise UsageError(f"{scheme!r} must be an object of options", path=self.file)
            parsed = within | parsed
        return parsed


@lru_cache(maxsize=16)  # each request asks for them
def _parsed(
    options: str | None,
    file: str | None,
    timeout: str | None,
    revalidate: str | None,
    immutable: str | None,
    requests: str | None,
) -> StorageOptions:
    return StorageOptions(
        "{}" if options is None else options,
        file,
        _number(TIMEOUT_VARIABLE, timeout, TIMEOUT_SECONDS),
        _number(REVALIDATE_VARIABLE, revalidate, REVALIDATE_SECONDS),
        bool(immutable),
        max(int(_number(REQUESTS_VARIABLE, requests, REQUESTS)), 1),
    )


def divide_requests(processes: int) -> None:
    """Have so many processes, which this one will start, send together as many requests at once as one would. Each may
    send one. Raises UsageError for an environment that is wrong.
    """
    os.environ[REQUESTS_VARIABLE] = str(max(StorageOptions.configured().requests // processes, 1))


_given: dict[str, str] = {}


def give_options(url: str, options: Mapping[str, Any]) -> None:
    """Use options for the clients of what is at a URL and below it, in this process. Where several such URLs have
    options, those of the longest count.

    They may hold secrets: nothing writes them down. Raises UsageError for an option that JSON cannot hold.
    """
    if options:
        _given[url.rstrip("/")] = options_text(options)


def given_options(url: str) -> str:
    """The JSON of the options that `give_options` was told for a URL."""
    longest = max((prefix for prefix in _given if url == prefix or url.startswith(f"{prefix}/")), key=len, default="")
    return _given.get(longest, "{}")


def options_text(options: Mapping[str, Any]) -> str:
    """Options as JSON. Raises UsageError for one that JSON cannot hold."""
    try:
        return json.dumps(options, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"an option of a store must be text, a number, or a list or dict of these: {error}") from error


def start_of(url: str) -> str:
    """The beginning of a URL that its client depends on: the scheme, and the host or bucket, as `s3://bucket`."""
    scheme, _, path = url.partition("://")
    return f"{scheme}://{path.partition('/')[0]}"


def parse_option(text: str) -> tuple[str, Any]:
    """The name and value of `name=value`: true, false, none and numbers are such values, else it is text.

    Raises UsageError, also if the name is that of a secret, or the value holds one.
    """
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise UsageError(f"not an option of a store: {name!r}; expected NAME=VALUE")
    if _SECRET.search(name):
        raise UsageError(
            f"{name} may hold a secret, which others would see in the list of processes: "
            "set it in the environment or in --options-file"
        )
    if _SECRET_VALUE.search(value):
        raise UsageError(
            f"the value of {name} may hold a secret, which others would see in the list of processes: "
            "set it in the environment or in --options-file"
        )
    if value.startswith(("{", "[")):
        raise UsageError(f"the value of {name} is no text and no number: write objects and lists into --options-file")
    if value.lower() in _VALUES:
        return name, _VALUES[value.lower()]
    try:
        return name, json.loads(value) if re.fullmatch(r"-?[0-9.]+", value) else value
    except ValueError:
        return name, value


def _number(variable: str, text: str | None, default: float) -> float:
    try:
        return default if text is None else max(float(text), 0)
    except ValueError as error:
        raise UsageError(f"${variable} is not a number: {text!r}") from error


@cache
def _read(path: str) -> dict[str, Any]:
    try:
        return _object(read_private(path, _FILE_MAX).decode(errors="replace"), path)
    except OSError as error:
        raise UsageError(f"the options cannot be read: {error.strerror}", path=path) from error


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise UsageError(f"{where}: not a JSON object")
    return parsed
