"""Checks of the machine: what mounting needs, what makes it better, and what to do about the rest.

A check reads; it changes nothing, and mounts nothing.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from touchfs import NAMESAKE
from touchfs.core.extras import DISTRIBUTION, install_hint
from touchfs.indexing.place import index_directory
from touchfs.source.scratch.store import Scratch
from touchfs.store.place import state_directory
from touchfs_mount.mounting.status import list_mounts
from touchfs_mount.mountpoints.erofs import KIND

# FUSE_NOTIFY_RESEND: a new worker gets the requests of a dead one.
RESEND_KERNEL = (6, 9)
# EROFS images in files, with files as devices.
IMAGE_KERNEL = (6, 12)
DESCRIPTORS = 65536
# The smallest index or state takes less. Pseudo file systems such as /proc have no room at all.
ROOM = 1 << 20
# Where mount(8) looks for helpers.
_HELPERS = "/sbin:/sbin/fs.d:/sbin/fs"
# Without this extra nothing can be mounted; without others some formats or stores cannot be read, for example.
_MOUNTING = "fuse"
# Extras for those who work on touchfs itself, and `all`, which is made of the others.
_NOT_LISTED = frozenset({"all", "dev", "interop", "bench"})
# A requirement, as in the metadata of packages: `fsspec[http]>=2023.6; extra == "s3"`.
_REQUIREMENT = re.compile(r"""([\w.-]+)(?:\[([\w-]+)\])?[^;]*;.*\bextra == ["']([\w-]+)["']""")

# Each reads and parses all that a package tells of itself.
_version, _requires = cache(version), cache(requires)


class Rating(StrEnum):
    """GOOD; NOTE, which limits something; or BAD: a mount fails."""

    GOOD = "ok"
    NOTE = "note"
    BAD = "bad"


# By the health of a mount: its rating and what to do, before the mount point.
_ADVICE = {
    "dead": (Rating.BAD, "touchfs umount --lazy"),
    "does not answer": (Rating.BAD, "touchfs umount --abort"),
    "unreadable": (Rating.NOTE, "if this is no mount of touchfs, umount"),
    "hidden": (Rating.NOTE, "to see it, umount what is mounted over"),
    "tars do not answer": (Rating.BAD, "wait for the file system of its tars, or touchfs umount --lazy"),
    "changed": (Rating.BAD, "its tars have changed, so mount it again after touchfs umount"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `advice` says what to do, and is empty if nothing is to be done."""

    rating: Rating
    subject: str
    found: str
    advice: str = ""


def check_machine(state_dir: str | None = None) -> Iterator[Finding]:
    """Yield a finding for each thing that a mount depends on. `state_dir` is that of `touchfs mount`."""
    yield _device()
    yield _fusermount()
    yield _mount_helper()
    yield _kernel()
    yield _images()
    yield _descriptors()
    yield _others()
    yield from _directories(state_dir)
    yield from _mounts()
    yield from _extras()


def _device() -> Finding:
    if not os.path.exists("/dev/fuse"):
        advice = "run `modprobe fuse`, or give the container --device /dev/fuse --cap-add SYS_ADMIN"
        return Finding(Rating.BAD, "/dev/fuse", "is missing", advice)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return Finding(Rating.BAD, "/dev/fuse", "cannot be opened", "as root: chmod 666 /dev/fuse")
    return Finding(Rating.GOOD, "/dev/fuse", "can be opened")


def _fusermount() -> Finding:
    path = shutil.which("fusermount3")
    if path is None:
        return Finding(Rating.BAD, "fusermount3", "is missing", "install the package fuse3")
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    found = f"{path}, {shown.removeprefix('fusermount3 ') or 'of unknown version'}"
    if os.geteuid() != 0 and not os.stat(path).st_mode & stat.S_ISUID:
        return Finding(Rating.BAD, "fusermount3", f"{path} is not setuid root", f"as root: chmod u+s {path}")
    profile = "/etc/apparmor.d/fusermount3"
    if os.path.exists(profile) and _text("/sys/module/apparmor/parameters/enabled").startswith("Y"):
        advice = f"if a mount fails with `Permission denied`, see which directories {profile} allows"
        return Finding(Rating.NOTE, "fusermount3", f"{found}; AppArmor limits where it may mount", advice)
    return Finding(Rating.GOOD, "fusermount3", found)


def _mount_helper() -> Finding:
    name = "mount.touchfs"
    path = shutil.which(name, path=_HELPERS)
    if path is not None:
        return Finding(Rating.GOOD, name, f"{path} runs {os.path.realpath(path)}")
    is_link = any(os.path.islink(os.path.join(directory, name)) for directory in _HELPERS.split(":"))
    found = "points to a program that cannot be run" if is_link else "is not installed"
    return Finding(Rating.NOTE, name, found, "for `mount -t touchfs` and /etc/fstab, as root: touchfs setup helper")


def _kernel() -> Finding:
    release = os.uname().release
    numbers = tuple(map(int, re.findall(r"\d+", release)[:2]))
    if numbers < RESEND_KERNEL:
        found = f"Linux {release}: if a worker dies, the requests that it had fail"
        return Finding(Rating.NOTE, "kernel", found, "Linux 6.9 or later hands them to the next worker")
    return Finding(Rating.GOOD, "kernel", f"Linux {release}")


def _images() -> Finding:
    """Whether `touchfs mount --kernel` may work. What else it depends on, it tries itself."""
    release = os.uname().release
    subject, plain = "mount --kernel", "mount without --kernel"
    if os.geteuid() != 0:
        return Finding(Rating.NOTE, subject, "is root's alone", plain)
    if tuple(map(int, re.findall(r"\d+", release)[:2])) < IMAGE_KERNEL:
        return Finding(
            Rating.NOTE, subject, f"needs Linux {'.'.join(map(str, IMAGE_KERNEL))}, and this is {release}", plain
        )
    if KIND not in _text("/proc/filesystems").split():
        return Finding(Rating.NOTE, subject, "this kernel has no EROFS, or has not loaded it", "try `modprobe erofs`")
    return Finding(Rating.GOOD, subject, f"Linux {release} has EROFS")


def _descriptors() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        found = f"a process may open {hard:,}: with more shards, some are closed and opened again"
        return Finding(Rating.NOTE, "open files", found, "raise the hard limit (nofile in limits.conf, LimitNOFILE=)")
    return Finding(Rating.GOOD, "open files", "enough for many shards")


def _others() -> Finding:
    words = re.sub(r"#.*", "", _text("/etc/fuse.conf")).split()
    if os.geteuid() != 0 and "user_allow_other" not in words:
        advice = "as root: add the line user_allow_other to /etc/fuse.conf"
        return Finding(Rating.NOTE, "--allow-other", "is root's alone here", advice)
    return Finding(Rating.GOOD, "--allow-other", "may be used")


def _directories(state_dir: str | None) -> Iterator[Finding]:
    for subject, path, option in (
        ("indexes", index_directory(), "$XDG_CACHE_HOME, or mount with --no-index-cache"),
        ("states", state_directory(state_dir), "--state-dir"),
        ("scratch store", Scratch.configured().directory, "$TOUCHFS_SCRATCH_DIR"),
    ):
        existing = _nearest_existing(path)
        free = shutil.disk_usage(existing).free
        if not os.path.isdir(existing):
            problem = "is not a directory"
        elif not os.access(existing, os.W_OK | os.X_OK):
            problem = "cannot be written"
        elif free < ROOM:
            problem = "has no room"
        else:
            yield Finding(Rating.GOOD, subject, f"{path}, {free / 1e9:,.1f} GB free")
            continue
        yield Finding(Rating.BAD, subject, f"{existing} {problem}", f"choose another place: {option}")


def _mounts() -> Iterator[Finding]:
    for each in list_mounts():
        if each.health in _ADVICE:
            rating, advice = _ADVICE[each.health]
            yield Finding(rating, each.mountpoint, each.health, f"{advice} {each.mountpoint}")


def _extras() -> Iterator[Finding]:
    if NAMESAKE is not None:
        what, _, advice = NAMESAKE.partition(": ")
        yield Finding(Rating.BAD, DISTRIBUTION, what, advice.strip("`"))
    absent = list[str]()
    for extra in metadata(DISTRIBUTION).get_all("Provides-Extra", []):
        if extra in _NOT_LISTED:
            continue
        packages = _packages(DISTRIBUTION, extra)
        missing = [name for name in packages if not _is_installed(name)]
        subject = f"{DISTRIBUTION}[{extra}]"
        if missing and extra != _MOUNTING:
            absent.append(extra)
        elif missing:
            found, advice = f"{' and '.join(missing)} not installed", install_hint(extra)
            yield Finding(Rating.BAD, subject, found, advice)
        else:
            yield Finding(Rating.GOOD, subject, ", ".join(f"{name} {_version(name)}" for name in packages))
    if absent:
        found = f"not installed, and each needed for some data only: {', '.join(absent)}"
        yield Finding(Rating.NOTE, "extras", found, f"{install_hint(absent[0])}, for example, or {install_hint('all')}")


def _packages(package: str, extra: str) -> list[str]:
    """The packages that an extra of an installed package needs, and those that the extras of these need."""
    found = []
    for match in filter(None, map(_REQUIREMENT.match, _requires(package) or [])):
        name, its_extra, needed_by = match.groups()
        if needed_by == extra:
            found.append(name)
            if its_extra and _is_installed(name):
                found += _packages(name, its_extra)
    return found


def _is_installed(package: str) -> bool:
    try:
        _version(package)
    except PackageNotFoundError:
        return False
    return True


def _nearest_existing(path: str) -> str:
    """The path itself, or the nearest one above it that exists: missing directories are created when needed."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
