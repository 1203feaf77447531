"""The paths of state files and logs, and the check that their files are trustworthy."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from urllib.parse import quote

import platformdirs

from touchfs.core.errors import StateError, UntrustedError
from touchfs.core.location import Location
from touchfs.core.names import hex_digest
from touchfs.posix.trust import check_trusted_directory, check_trusted_file, make_directory, make_private

# The database file and the files that SQLite opens beside it.
_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")
STATE_SUFFIX, LOG_SUFFIX = ".sqlite", ".log"
_NAME_MAX = 200


def state_directory(state_dir: str | None = None) -> str:
    """Return the absolute directory for states and logs: the given one, or the user's."""
    return os.path.abspath(state_dir or platformdirs.user_state_dir("touchfs"))


def state_path(source: str, suffix: str, state_dir: str | None = None, split: str | None = None) -> str:
    """Return the absolute path of the file of a source, or of a split of it: a daemon changes its working directory."""
    return state_path_of_resolved(Location.of(source).resolved, suffix, state_dir, split)


def state_path_of_resolved(resolved: str, suffix: str, state_dir: str | None = None, split: str | None = None) -> str:
    """Like `state_path`, for the `resolved` path of a source: looks at no data."""
    named = resolved + ("" if split is None else f"\0{split}")
    return os.path.join(state_directory(state_dir), hex_digest(named.encode(errors="surrogateescape")) + suffix)


def log_path(mount_point: str, state_dir: str | None = None) -> str:
    """Return the path of the log of a background mount: `/mnt/speech` logs to `mnt-speech.HASH.log`."""
    encoded = os.fsencode(mount_point)
    name = quote(encoded.strip(b"/").replace(b"/", b"-"), safe=" ")[:_NAME_MAX]
    digest = hashlib.blake2b(encoded, digest_size=4).hexdigest()
    return os.path.join(state_directory(state_dir), f"{name}.{digest}{LOG_SUFFIX}")


def prepare_database(path: str) -> None:
    """Create the directory and the file of a SQLite database, accessible only for us, if they do not exist.

    Raises StateError as `check_database`, and OSError.
    """
    make_directory(os.path.dirname(path) or ".")
    check_database(path)
    with suppress(OSError):  # it exists, or SQLite reports why it cannot be created
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def check_database(path: str) -> None:
    """Raise StateError for files that another user may have planted, and OSError.

    It opens no file: closing one would drop the locks that other connections of this process have on it.
    """
    directory = os.path.dirname(path) or "."
    try:
        check_trusted_directory(directory)
        if directory == state_directory():
            make_private(directory)
        for suffix in _SQLITE_SUFFIXES:
            with suppress(FileNotFoundError):
                _check_for_us(path + suffix)
    except UntrustedError as error:
        raise StateError(f"{error.message}: see to that, or choose another --state-dir", path=error.path) from error


def _check_for_us(path: str) -> None:
    found = os.lstat(path)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(path, 0o600)  # a copy has the umask's mode
    check_trusted_file(path)
    if found.st_nlink > 1:
        raise UntrustedError("is a hard link to another file", path=path)


def file_at(path: str) -> tuple[int, int]:
    """Return the device and the inode of a file, or zeros if stat fails."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino
