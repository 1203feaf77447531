"""libfuse's mount options, and its error messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from touchfs.errors import MountError
from touchfs_mount.mounting.mountpoint import EXIT_MOUNT_FAILED, EXIT_NO_FUSE, EXIT_NOT_PERMITTED

_STDERR_SIZE = 1 << 16


class _Option(str):
    """An option for pyfuse3, which encodes it as ASCII: a mount of `ümlaut/` needs the file system's encoding."""

    __slots__ = ()

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        return os.fsencode(str(self))


@dataclass(frozen=True, slots=True)
class MountOptions:
    """Options of a mount. `path` must be resolved (`mountpoint.resolve`); mountinfo shows `fsname` as the source.

    A read of a file that does not answer fails after `timeout_seconds`, or waits for ever if that is None. `descriptor`
    is that of a mount that exists already (`passed.py`), else None.
    """

    path: str
    fsname: str
    workers: int = 1
    trio_loop: bool = False
    allow_other: bool = False
    allow_root: bool = False
    read_only: bool = False
    noexec: bool = False
    stuck_seconds: float = 10.0
    timeout_seconds: float | None = None
    resend: bool = True
    descriptor: int | None = None
    trace: bool = False

    @property
    def target(self) -> str:
        """The mount point for `pyfuse3.init`."""
        return self.path if self.descriptor is None else f"/dev/fd/{self.descriptor}"

    @property
    def fuse_options(self) -> frozenset[str]:
        """The options for `pyfuse3.init`."""
        fsname = self.fsname.replace("\\", "\\\\").replace(",", "\\,")
        options = {f"fsname={fsname}", "subtype=touchfs", "default_permissions", "noatime", "nosuid", "nodev"}
        flags = {
            "allow_other": self.allow_other,
            "allow_root": self.allow_root,
            "ro": self.read_only,
            "noexec": self.noexec,
            "debug": self.trace,
        }
        return frozenset(map(_Option, options | {name for name, is_set in flags.items() if is_set}))


def mount_error(reason: str, path: str) -> MountError:
    """The error for a message of libfuse or fusermount3, with advice and the exit status."""
    reason = " ".join(reason.split())
    status = EXIT_MOUNT_FAILED
    if "user_allow_other" in reason:
        reason = "--allow-other and --allow-root need the line `user_allow_other` in /etc/fuse.conf"
        status = EXIT_NOT_PERMITTED
    elif "modprobe" in reason:
        status = EXIT_NO_FUSE
    elif "not permitted" in reason or "denied" in reason:
        reason += " (in a container, give it --device /dev/fuse --cap-add SYS_ADMIN; on Ubuntu, AppArmor allows "
        reason += "fusermount3 to mount below the home directory, /mnt, /media and /tmp only)"
        status = EXIT_NOT_PERMITTED
    return MountError(reason, path=path, exit_status=status)


@contextmanager
def stderr_of_libfuse() -> Iterator[Callable[[], str]]:
    """Capture descriptor 2, the only place to which libfuse and fusermount3 write the reason of a failure.

    Yields a function that returns the text.
    """
    kept = os.dup(2)
    with open(os.memfd_create("touchfs-stderr"), "rb") as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield lambda: os.pread(captured.fileno(), _STDERR_SIZE, 0).decode("utf-8", "replace").strip()
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def fuse_descriptors() -> set[int]:
    """The FUSE descriptors of this process. libfuse does not return the one of its session."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == "/dev/fuse":
                found.add(int(name))
        except FileNotFoundError:
            continue
    return found
