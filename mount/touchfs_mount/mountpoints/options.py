"""The options of a mount, and the errors of mounting it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from touchfs.core.errors import MountError
from touchfs_mount.mountpoints.mountpoint import EXIT_MOUNT_FAILED, EXIT_NO_FUSE, EXIT_NOT_PERMITTED


@dataclass(frozen=True, slots=True)
class MountOptions:
    """Options of a mount. `path` must be resolved (`mountpoint.resolve`); mountinfo shows `fsname` as the source.

    A read of a file that does not answer fails after `timeout_seconds`, or waits for ever if that is None. `descriptor`
    is that of a mount that exists already (`passed`), else None, and `control_descriptor` that of its control mount.
    `control` is the directory of the control mount as somebody named it; None chooses one. `has_control` is false for
    a mount without one.
    """

    path: str
    fsname: str
    workers: int = 1
    allow_other: bool = False
    allow_root: bool = False
    has_control: bool = True
    control: str | None = None
    noexec: bool = False
    stuck_seconds: float = 10.0
    timeout_seconds: float | None = None
    resend: bool = True
    descriptor: int | None = None
    control_descriptor: int | None = None
    trace: bool = False

    @property
    def admits_others(self) -> bool:
        """Whether the kernel lets other users in. It knows no user but root and the one who mounts: with --allow-root
        modes keep out all but these.
        """
        return self.allow_other or (self.allow_root and os.geteuid() != 0)


def mount_error(reason: str, path: str) -> MountError:
    """The error for a message of fusermount3 or mount(2), with advice and the exit status."""
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
