"""Mount points: reading mountinfo, checking and creating the directory before mounting, and unmounting.

No function that a daemon calls here accesses a path inside its own mount: it would wait for itself. Only `prepare`,
which runs before mounting, accesses a mount that is in the way; its error names the command that helps.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

from touchfs.core.errors import MountError
from touchfs.posix.mounts import Mount, mounts, reached
from touchfs.registry.containers import single_named

log = logging.getLogger(__name__)

FILE_SYSTEM = "fuse.touchfs"
CONNECTIONS = "/sys/fs/fuse/connections"
CLAIM_SECONDS = 1.0
# A daemon is gone so soon after its mount, whose number the kernel gives to the next one at once.
_ENDING_SECONDS = 2.0

# Exit statuses of `touchfs mount`. The command's help lists all.
EXIT_MOUNTPOINT, EXIT_NO_FUSE, EXIT_NOT_PERMITTED, EXIT_TIMEOUT, EXIT_MOUNT_FAILED = 10, 15, 16, 17, 32


def resolve(path: str) -> str:
    """The absolute path without links, as in mountinfo. Does not access a mount at the path, which may be dead."""
    absolute = os.path.abspath(path)
    candidate = os.path.join(os.path.realpath(os.path.dirname(absolute)), os.path.basename(absolute))
    return candidate if mounted_at(candidate) else os.path.realpath(candidate)


def mounted_at(path: str) -> Mount | None:
    """The mount at exactly this path that is reached there, or None."""
    found = reached(path, mounts())
    return None if found is None or found.point != path else found


def prepare(path: str) -> Claim:
    """Make sure that `path` can be mounted on by FUSE, as `claim_directory`. Raises MountError with advice."""
    if not os.path.exists("/dev/fuse"):
        raise MountError(
            "/dev/fuse is missing: run `modprobe fuse`, or give the container --device /dev/fuse --cap-add SYS_ADMIN",
            exit_status=EXIT_NO_FUSE,
        )
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise MountError(
            "no permission to open /dev/fuse: join its group or `chmod 666` it as root; "
            "`touchfs ls`, `cat` and `serve` need no mount",
            exit_status=EXIT_NOT_PERMITTED,
        )
    if shutil.which("fusermount3") is None:
        raise MountError("fusermount3 is missing: install the package fuse3", exit_status=EXIT_NO_FUSE)
    return claim_directory(path)


def claim_directory(path: str) -> Claim:
    """Make sure that `path` can be mounted on: an empty directory that is not a mount point.

    Detaches a dead mount of touchfs, and creates a missing directory. Raises MountError with advice.
    """
    mounted = mounted_at(path)
    if mounted is not None and mounted.kind == FILE_SYSTEM:
        if not is_dead(path):
            raise _mountpoint_error(
                path, f"touchfs is already mounted here (from {mounted.source}); unmount it with `touchfs umount`"
            )
        log.warning("%s: detaching a mount of %s whose daemon is gone", path, mounted.source)
        unmount(path, lazy=True)
        mounted = mounted_at(path)
    if mounted is not None and mounted.kind != "autofs":
        raise _mountpoint_error(path, f"{mounted.kind} is already mounted here; use another directory")
    claim = Claim(path)
    claim.take()
    with os.scandir(path) as entries:
        occupied = next(entries, None)
    if occupied is not None:
        claim.release()
        raise _mountpoint_error(path, f"is not empty (it holds {occupied.name!r}); {_advice(occupied.name)}")
    return claim


def _advice(name: str) -> str:
    """Return what to do if a file of this name is where the mount point should be."""
    is_swapped = single_named(name) is not None
    return "DATASET comes first, and the mount point last" if is_swapped else "mount on an empty directory"


class Claim:
    """The directory to mount on, created if missing, and locked from its check until it is mounted on (`release`).

    A daemon that ends removes the directory that it created, possibly just after another daemon has checked it. So both
    lock the directory (flock) meanwhile. On file systems that cannot lock directories the race remains. A claim that is
    not taken does nothing.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.created = False
        self._directory = -1

    def take(self) -> None:
        """Create and lock the directory. Raises MountError."""
        deadline = time.monotonic() + CLAIM_SECONDS
        while not self._take():
            if time.monotonic() > deadline:
                raise _mountpoint_error(self.path, "another `touchfs mount` is about to mount here")
            time.sleep(0.01)

    def _take(self) -> bool:
        """Create and lock the directory. False if another process has locked it, or has just removed it."""
        try:
            self.created |= _make(self.path)
        except FileNotFoundError as error:
            missing = _first_missing(self.path)
            raise _mountpoint_error(self.path, f"{missing} does not exist: `mkdir -p` it first") from error
        except OSError as error:
            raise _mountpoint_error(self.path, f"cannot create the directory: {error.strerror}") from error
        try:
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except NotADirectoryError as error:
            raise _mountpoint_error(self.path, f"is not a directory; {_advice(self.path)}") from error
        except OSError as error:
            raise _mountpoint_error(self.path, error.strerror or str(error)) from error
        if _lock(directory) and os.fstat(directory).st_nlink:
            self._directory = directory
            return True
        os.close(directory)
        return False

    def release(self) -> None:
        """Unlock the directory. Each process forked since the claim must call this, to close its descriptor."""
        if self._directory >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(self._directory, fcntl.LOCK_UN)
            os.close(self._directory)
            self._directory = -1

    def remove(self) -> None:
        """After the mount has ended, remove the directory if we created it, unless it is claimed again."""
        self.release()
        if not self.created:
            return
        with contextlib.suppress(OSError):
            directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if _lock(directory):
                    os.rmdir(self.path)
            finally:
                os.close(directory)


def unmount(path: str, *, lazy: bool = False) -> None:
    """Unmount `path`. With `lazy` the name is detached at once, and the mount ends when it is no longer used.

    Raises MountError with the reason of fusermount3, for example "busy".
    """
    command = ["fusermount3", "-u", *(["-z"] if lazy else []), "--", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MountError("cannot unmount: fusermount3 is missing: install the package fuse3", path=path) from None
    if done.returncode:
        reason = done.stderr.strip().removeprefix("fusermount3: ").rpartition(": ")[2] or "fusermount3 failed"
        raise MountError(f"cannot unmount: {reason}", path=path)


def abort(mounted: Mount) -> None:
    """End the connection of a mount: all its requests fail at once, also those that hang. The mount stays, but is dead.

    The kernel's control files (fusectl) need not be mounted here: root mounts them where nobody else sees them. Raises
    MountError if they are another user's.
    """
    # The kernel names the connection by the minor number of the mount's device: fs/fuse/control.c.
    control = f"{CONNECTIONS}/{mounted.device.partition(':')[2]}/abort"
    command = ["sh", "-c", f"echo 1 > {control}"]
    if not os.path.exists(CONNECTIONS) or not os.listdir(CONNECTIONS):
        mount_it = f"mount -t fusectl fusectl {CONNECTIONS}"
        command = ["unshare", "--mount", "sh", "-c", f"{mount_it} && echo 1 > {control}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().rpartition(": ")[2] or "it failed"
        raise MountError(f"cannot write {control}: {reason}; try it as root", path=mounted.point)


def detach(path: str, device: str) -> None:
    """Unmount the mount of this device if it is the one at `path`; if it is busy, detach it lazily."""
    for lazy in (False, True):
        mounted = mounted_at(path)
        if mounted is None or mounted.device != device:
            return
        with contextlib.suppress(MountError):
            unmount(path, lazy=lazy)
            return


def users(path: str) -> list[str]:
    """The processes that keep the mount busy, as `name (pid)`. Processes of other users may be missing.

    This reads only /proc: a stat of the files themselves would be a request to the mount.
    """
    inside = re.compile(re.escape(path) + "(/|$)")
    # A mapped file needs no descriptor: `address permissions offset device inode path`.
    mapped = re.compile(rf"^\S+ \S+ \S+ \S+ \S+ +{inside.pattern}", re.MULTILINE)
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue  # this process may have its current directory in the mount, too
        try:
            links = [f"/proc/{pid}/cwd", f"/proc/{pid}/root", *(e.path for e in os.scandir(f"/proc/{pid}/fd"))]
            if any(inside.match(os.readlink(link)) for link in links) or mapped.search(_text(f"/proc/{pid}/maps")):
                found.append(f"{_text(f'/proc/{pid}/comm').strip()} ({pid})")
        except OSError:
            continue  # it has ended, or belongs to another user
    return found


@contextlib.contextmanager
def liveness_socket(path: str) -> Iterator[None]:
    """A listening socket that shows that the daemon of the mount at `path` lives. `daemon_of` finds it.

    A socket is closed however its process ends. Its name is the device number, which no other mount has while this one
    is in use. The name is abstract, so no file is left behind, and `umount` need not know our directories.
    """
    mounted = mounted_at(path)
    with socket.socket(socket.AF_UNIX) as listening:
        until = time.monotonic() + _ENDING_SECONDS
        while mounted is not None:
            try:
                listening.bind(_address(mounted.device))
                listening.listen()
                break
            except OSError as error:
                # The daemon of a mount that had the number before may be about to exit.
                if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                    break
                time.sleep(0.01)
        yield


def daemon_of(device: str) -> socket.socket:
    """A connection to the daemon of a mount, made before that is unmounted: the next mount may get the number.

    It is not connected if the daemon has exited.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        connection.connect(_address(device))
    return connection


def wait_for_end(daemon: socket.socket, seconds: float) -> bool:
    """Wait until a daemon has exited: after unmounting it may still remove a directory. False if it goes on after so
    many seconds.
    """
    daemon.settimeout(seconds)
    try:
        daemon.recv(1)
    except TimeoutError:
        return False
    except OSError:
        pass  # it has exited
    return True


def set_read_ahead(device: str, kilobytes: int) -> None:
    """Increase the kernel's read-ahead for a mount. Needs root; without it the mount is only slower."""
    try:
        with open(f"/sys/class/bdi/{device}/read_ahead_kb", "w", encoding="ascii") as control:
            control.write(str(kilobytes))
    except OSError as error:
        log.info("read-ahead of %s stays as it is: %s", device, error.strerror)


def _mountpoint_error(path: str, reason: str) -> MountError:
    return MountError(reason, path=path, exit_status=EXIT_MOUNTPOINT)


def _make(path: str) -> bool:
    try:
        os.mkdir(path)
    except FileExistsError:
        return False
    return True


def _first_missing(path: str) -> str:
    """The topmost directory above the path that does not exist."""
    missing = path
    while not os.path.lexists(above := os.path.dirname(missing)):
        missing = above
    return missing


def _lock(directory: int) -> bool:
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a network file system may not lock directories
    return True


def is_dead(path: str) -> bool:
    """True if nobody serves the FUSE mount at a path. The kernel keeps an answer to a stat, but none to a statfs."""
    try:
        os.statvfs(path)
    except OSError as error:
        return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    return False


def _address(device: str) -> str:
    return f"\0touchfs-mount/{device}"


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
