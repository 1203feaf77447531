"""How to mount, in libfuse's words, and what its words mean when it does not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from touchfs.errors import MountError
from touchfs_mount.mounting.mountpoint import EXIT_MOUNT_FAILED, EXIT_NO_FUSE, EXIT_NOT_PERMITTED

_SAID_SIZE = 1 << 16


class _Option(str):
    """An option as pyfuse3 takes it: it asks for the bytes as ASCII, and mounts of `ümlaut/` need more."""

    __slots__ = ()

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        return os.fsencode(str(self))


@dataclass(frozen=True, slots=True)
class MountOptions:
    """How to mount. `path` is resolved (`mountpoint.resolve`), `fsname` is what mountinfo shows as the source.

    Files that do not answer are waited for `timeout_seconds`, or for ever.
    """

    path: str
    fsname: str
    workers: int = 1
    trio_loop: bool = False
    allow_other: bool = False
    read_only: bool = False
    stuck_seconds: float = 10.0
    timeout_seconds: float | None = None
    resend: bool = True

    @property
    def fuse_options(self) -> frozenset[str]:
        fsname = self.fsname.replace("\\", "\\\\").replace(",", "\\,")
        options = {f"fsname={fsname}", "subtype=touchfs", "default_permissions", "noatime", "nosuid", "nodev"}
        wanted = {"allow_other": self.allow_other, "ro": self.read_only}
        return frozenset(map(_Option, options | {name for name, is_wanted in wanted.items() if is_wanted}))


def mount_error(reason: str, path: str) -> MountError:
    """What libfuse or fusermount3 said, as an error that says what to do."""
    reason = " ".join(reason.split())
    status = EXIT_MOUNT_FAILED
    if "user_allow_other" in reason:
        reason = "--allow-other needs the line `user_allow_other` in /etc/fuse.conf"
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
    """libfuse and fusermount3 write the reason of a failure to descriptor 2, and only there."""
    kept = os.dup(2)
    with open(os.memfd_create("touchfs-stderr"), "rb") as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield lambda: os.pread(captured.fileno(), _SAID_SIZE, 0).decode("utf-8", "replace").strip()
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def fuse_descriptors() -> set[int]:
    """This process's: libfuse does not tell which is its session's."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == "/dev/fuse":
                found.add(int(name))
        except FileNotFoundError:
            continue
    return found
