"""The directory of the scratch store: who may write a file, how much room there is, and what is evicted for it.

A file has a complete name, and while it is being written an unfinished one. All calls take complete names. The store
is locked while room is reserved and files are removed, never while a file is written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from touchfs.core.errors import SourceError, UntrustedError
from touchfs.posix.atomic import TEMPORARY_PREFIX
from touchfs.posix.trust import check_trusted_file, make_directory, open_for_update
from touchfs.source.scratch.account import Account

# Default limit in bytes; never more than half of the disk space available to the store.
SIZE_DEFAULT = 50 * 10**9

_OURS = re.compile(rf"({re.escape(TEMPORARY_PREFIX)})?[0-9a-f]{{32}}\.(scratch|value)")
_LOCK = ".touchfs-scratch.lock"
# A complete file. A row takes 56 bytes, so a million files are counted in 56 MB.
_ROW = np.dtype([("used", "i8"), ("size", "i8"), ("name", "S40")])
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def converted_errors(directory: str) -> Iterator[None]:
    """Convert what goes wrong with the store and its files to SourceError."""
    try:
        yield
    except UntrustedError as error:
        message = f"{error.message}: correct that, or name another --scratch-dir"
        raise SourceError(message, path=error.path) from error
    except OSError as error:
        advice = "--scratch-dir names another place"
        if error.errno in _FULL:
            advice = f"free some space there, or {advice}"
        message = f"the scratch store cannot be used: {error.strerror}; {advice}"
        raise SourceError(message, path=directory) from error


@dataclass(frozen=True, slots=True)
class Space:
    """The directory, and the limit in bytes of all files in it; None is the default limit."""

    directory: str
    limit: int | None

    def path(self, file: str) -> str:
        """Return the path of a complete file."""
        return os.path.join(self.directory, file)

    @contextmanager
    def unfinished_file(self, file: str) -> Iterator[int]:
        """Open an unfinished file, locked. Waits until no other process is writing it.

        At the end the file is removed if it was not completed.
        """
        path = self._unfinished(file)
        while True:
            try:
                descriptor = open_for_update(path, os.O_RDWR)
            except FileNotFoundError:
                make_directory(self.directory)
                continue
            try:
                if _try_lock(descriptor) and _is_at(descriptor, path):
                    break
                fcntl.flock(descriptor, fcntl.LOCK_SH)  # until its writer has ended, or shares the complete file
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        try:
            yield descriptor
        finally:
            if _is_at(descriptor, path):
                os.unlink(path)
            os.close(descriptor)

    def limit_now(self) -> int:
        """The limit in bytes as it is now."""
        if self.limit is not None:
            return self.limit
        make_directory(self.directory)
        with self._locked() as lock:
            return self._limit(Account.load(lock) or self._count()[0])

    def reserve(self, descriptor: int, file: str, needed: int, ahead: int = 0) -> int:
        """Reserve room for an unfinished file of at least `needed` bytes, and for `ahead` more as far as they are free.
        Returns the size that it may have. Raises SourceError if there is no room.
        """
        with self._locked() as lock:
            account = Account.load(lock) or self._count()[0]
            self._settle(account, file)
            if account.total + needed > self._limit(account):
                account = self._evict(file, needed)
            free = self._limit(account) - account.total
            account.unfinished[file] = room = max(needed, min(needed + ahead, free))
            account.save(lock)
            os.ftruncate(descriptor, room)
            return room

    def complete(self, descriptor: int, file: str) -> None:
        """Give an unfinished file its complete name."""
        with self._locked() as lock:
            account = Account.load(lock)
            os.rename(self._unfinished(file), self.path(file))
            if account is not None:
                account.unfinished.pop(file, None)
                account.complete += os.fstat(descriptor).st_size
                account.save(lock)

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the name and status of each trusted file, complete or not."""
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if _OURS.fullmatch(entry.name):
                    with suppress(FileNotFoundError, UntrustedError):
                        yield entry.name, check_trusted_file(entry.path)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files. A file that is missing already is no error. Raises OSError."""
        with self._locked() as lock:
            os.ftruncate(lock, 0)  # no account: the next writer counts what is left
            for path in paths:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def _settle(self, account: Account, own: str) -> None:
        """Clear the account of our own file and of those whose writers have ended."""
        account.unfinished.pop(own, None)
        for file in list(account.unfinished):
            path = self._unfinished(file)
            with ExitStack() as stack:
                try:
                    check_trusted_file(path)
                    if not _try_lock_path(path, stack):
                        continue
                    os.unlink(path)
                except (FileNotFoundError, UntrustedError):
                    with suppress(FileNotFoundError):  # the writer was killed after it completed the file
                        account.complete += os.lstat(self.path(file)).st_size
            del account.unfinished[file]

    def _evict(self, own: str, needed: int) -> Account:
        """Count all files, and evict some until `needed` bytes and a reserve are free. Returns the new account.

        Raises SourceError if there is no room.
        """
        account, files = self._count()
        self._settle(account, own)
        limit = self._limit(account)
        excess = account.total + needed - limit
        in_use, freed, chosen = sum(account.unfinished.values()), 0, []
        for row in files if needed <= limit else ():
            if freed >= excess + (limit - in_use) // 10:
                break
            path, size = self.path(row["name"].decode()), int(row["size"])
            if is_used(path):
                in_use += size
            else:
                chosen.append((path, size))
                freed += size
        for path, size in chosen if freed >= excess else ():
            # One at a time: so many files cannot be open at once. A reader may have taken one since the first look.
            with ExitStack() as stack:
                if _try_lock_path(path, stack):
                    os.unlink(path)
                    account.complete -= size
        if account.total + needed > limit:
            taken = f", of which {account.total - freed:,} are in use" if needed <= limit else ""
            raise SourceError(
                f"takes {needed:,} bytes or more in the scratch store {self.directory}, and the limit of that is "
                f"{limit:,}{taken}: --scratch-size raises it"
            )
        return account

    def _count(self) -> tuple[Account, npt.NDArray[np.void]]:
        """Return the account of all files that are there, and the complete ones, the least recently used first."""
        account = Account()

        def complete() -> Iterator[tuple[int, int, str]]:
            for name, found in self.files():
                if name.startswith(TEMPORARY_PREFIX):
                    account.unfinished[name.removeprefix(TEMPORARY_PREFIX)] = found.st_size
                else:
                    account.complete += found.st_size
                    yield found.st_atime_ns, found.st_size, name

        files = np.fromiter(complete(), _ROW)
        return account, files[np.argsort(files["used"], kind="stable")]

    def _limit(self, account: Account) -> int:
        if self.limit is not None:
            return self.limit
        disk = os.statvfs(self.directory)
        return min(SIZE_DEFAULT, (disk.f_bavail * disk.f_frsize + account.complete) // 2)

    def _unfinished(self, file: str) -> str:
        return self.path(TEMPORARY_PREFIX + file)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the lock file, locked."""
        descriptor = open_for_update(self.path(_LOCK), os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def is_used(path: str) -> bool:
    """Return whether a process holds a lock on a file."""
    with ExitStack() as stack:
        return not _try_lock_path(path, stack)


def _try_lock(descriptor: int) -> bool:
    """Take an exclusive lock if the file is not locked; return whether it succeeded."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_path(path: str, stack: ExitStack) -> bool:
    """Take an exclusive lock on a file until `stack` closes, if it is not locked; return whether it succeeded."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    stack.callback(os.close, descriptor)
    return _try_lock(descriptor) and _is_at(descriptor, path)


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether a path still names an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
