"""Mounts a directory, and returns the FUSE descriptor: by mount(2) for root, and by fusermount3 for everybody else.

fusermount3 opens /dev/fuse, mounts, and sends the descriptor back through the socket that `_FUSE_COMMFD` names
(libfuse, util/fusermount.c).
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass

from touchfs.core.errors import MountError
from touchfs_mount.mountpoints.options import mount_error

# linux/mount.h
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_NOATIME = 1, 2, 4, 8, 1024
_DIRECTORY_MODE = "40000"


@dataclass(frozen=True, slots=True)
class Connecting:
    """What to mount: `kind` is the subtype, `source` what mountinfo shows."""

    path: str
    kind: str
    source: str
    read_only: bool
    noexec: bool
    allow_other: bool


def connect(request: Connecting) -> int:
    """Mount, and return the descriptor. Raises MountError."""
    if os.geteuid() == 0:
        with suppress(PermissionError):  # in a container: fusermount3 may be allowed what we are not
            return _mount(request)
    return _fusermount(request)


def mount_as_root(request: Connecting, descriptor: int) -> None:
    """Mount a descriptor that is open already, by mount(2). Raises MountError."""
    try:
        _call_mount(request, descriptor)
    except OSError as error:
        raise mount_error(error.strerror or str(error), request.path) from error


def _mount(request: Connecting) -> int:
    """Mount by mount(2). Raises PermissionError, and MountError for anything else."""
    descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        _call_mount(request, descriptor)
    except PermissionError:
        os.close(descriptor)
        raise
    except OSError as error:
        os.close(descriptor)
        raise mount_error(error.strerror or str(error), request.path) from error
    return descriptor


def _call_mount(request: Connecting, descriptor: int) -> None:
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOATIME
    flags |= _MS_RDONLY * request.read_only | _MS_NOEXEC * request.noexec
    words = [f"fd={descriptor}", f"rootmode={_DIRECTORY_MODE}", f"user_id={os.geteuid()}", f"group_id={os.getegid()}"]
    words += ["default_permissions", *(["allow_other"] if request.allow_other else [])]
    libc = ctypes.CDLL(None, use_errno=True)
    texts = (request.source, request.path, f"fuse.{request.kind}", ",".join(words))
    source, target, kind, data = map(os.fsencode, texts)
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), data):
        number = ctypes.get_errno()
        raise OSError(number, f"mount failed: {os.strerror(number)}")


def _fusermount(request: Connecting) -> int:
    source = request.source.replace("\\", "\\\\").replace(",", "\\,")
    words = [f"fsname={source}", f"subtype={request.kind}", "default_permissions", "noatime", "nosuid", "nodev"]
    flags = {"ro": request.read_only, "noexec": request.noexec, "allow_other": request.allow_other}
    words += [name for name, is_set in flags.items() if is_set]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = ["fusermount3", "-o", ",".join(words), "--", request.path]
        environment = {**os.environ, "_FUSE_COMMFD": str(theirs.fileno())}
        try:
            done = subprocess.run(
                command, pass_fds=[theirs.fileno()], env=environment, stderr=subprocess.PIPE, check=False
            )
        except OSError as error:
            raise mount_error(f"fusermount3: {error.strerror}", request.path) from error
        if done.returncode:
            raise mount_error(done.stderr.decode("utf-8", "replace"), request.path)
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    if not descriptors:
        raise MountError("fusermount3 sent no descriptor", path=request.path)
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]
