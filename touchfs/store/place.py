"""Where the states of sources and the logs of mounts are kept, and whether what is there can be believed."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from urllib.parse import quote

import platformdirs

from touchfs.errors import StateError, UntrustedError
from touchfs.posix.trust import check_trusted_directory, check_trusted_file, make_directory, make_private

# What SQLite opens besides the file that it is given.
_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")
STATE_SUFFIX, LOG_SUFFIX = ".sqlite", ".log"
_NAME_MAX = 200


def state_directory(state_dir: str | None = None) -> str:
    """The directory for the states and logs of all mounts: the one named, or the user's."""
    return os.path.abspath(state_dir or platformdirs.user_state_dir("touchfs"))


def state_path(source: str, suffix: str, state_dir: str | None = None) -> str:
    """A file that is kept for a source. Absolute, as a daemon leaves the directory it was started in."""
    named = os.path.realpath(source).encode(errors="surrogateescape")
    return os.path.join(state_directory(state_dir), hashlib.blake2b(named, digest_size=16).hexdigest() + suffix)


def log_path(mount_point: str, state_dir: str | None = None) -> str:
    """The log of a mount in the background: `/mnt/speech` logs to `mnt-speech.HASH.log`."""
    named = os.fsencode(mount_point)
    name = quote(named.strip(b"/").replace(b"/", b"-"), safe=" ")[:_NAME_MAX]
    digest = hashlib.blake2b(named, digest_size=4).hexdigest()
    return os.path.join(state_directory(state_dir), f"{name}.{digest}{LOG_SUFFIX}")


def prepare_database(path: str) -> None:
    """Make the directory and the file of a SQLite database for us alone, as far as they are not there.

    Raises StateError as `check_database`, and OSError.
    """
    make_directory(os.path.dirname(path) or ".")
    check_database(path)
    with suppress(OSError):  # it is there, or SQLite says why it cannot be made
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def check_database(path: str) -> None:
    """Raise StateError for what somebody else may have put there, and OSError.

    Nothing that is there is opened: to close it would end the locks that other connections of this process have on it.
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
        told = f"{error.message}: see to that, or choose another --state-dir"
        raise StateError(told, path=error.path) from error


def _check_for_us(path: str) -> None:
    found = os.lstat(path)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(path, 0o600)  # which older versions made as the umask was
    check_trusted_file(path)
    if found.st_nlink > 1:
        raise UntrustedError("is a hard link to another file", path=path)
